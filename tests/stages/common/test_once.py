"""A model is asked once, and not again when it is read anew from the same files."""

from stages.common.kept.key import identify
from stages.common.linear import use_onednn
from stages.common.once import once_per_model
from tests.tiny import llama


def recording(answer):
    seen = []

    @once_per_model
    def probe(model):
        seen.append(model)
        return answer(model)

    return probe, seen


def of_files(weights):
    model = llama()
    identify(model, weights)
    return model


def test_what_is_read_anew_from_the_same_files_is_not_asked():
    probe, seen = recording(lambda model: True)
    first = of_files("a")
    assert probe(first)
    assert probe(first)
    assert probe(of_files("a"))
    assert seen == [first]
    double, other_kernel = of_files("a").double(), of_files("a")
    use_onednn(other_kernel)
    for other in (of_files("b"), llama(), llama(), double, other_kernel):
        assert probe(other)
        assert seen[-1] is other


def test_a_no_is_asked_again():
    probe, seen = recording(lambda model: False)
    for model in (of_files("a"), of_files("a")):
        assert not probe(model)
        assert not probe(model)
        assert seen[-1] is model
    assert len(seen) == 2


def test_a_yes_that_changed_the_model_is_asked_again():
    def change(model):
        model.set_attn_implementation("eager")
        return True

    probe, seen = recording(change)
    assert probe(of_files("a"))
    assert probe(of_files("a"))
    assert len(seen) == 2
