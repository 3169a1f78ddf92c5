"""What `prepare` has written down of model and prompts, as far as somebody should know it before the run."""

from typing import Any

from pipeline.check.findings import Finding
from stages.common import paths
from stages.common.params import Params
from stages.common.policy import load_tokenizer
from stages.common.read_json import read_json
from stages.rollout.stopping import stop_ids

SHOWN = 5


def model() -> list[Finding]:
    """Weights without a place, code that comes with the model, settings that are not used."""
    content = read_json(paths.MODEL_JSON)
    found = []
    if content.get("unused_weights"):
        text = f"weights that the architecture has no place for: {some(content['unused_weights'])}"
        found.append(Finding("warning", "prepare.model", f"{text}; is it the right kind of model?"))
    if content.get("remote_code"):
        text = f"runs Python code of the model's folder: {some(content['remote_code'])}"
        found.append(Finding("warning", "prepare.model.trust_remote_code", text))
    ignored = (content.get("generation_config") or {}).get("ignored")
    if ignored:
        text = f"not used: {some(ignored)}; params.yaml alone says how answers are sampled"
        found.append(Finding("ok", "generation_config.json", text))
    return found


def prompts() -> list[Finding]:
    """What was dropped, golden answers that fail, and what was noticed in data and template."""
    content = read_json(paths.PROMPTS_JSON)
    found = [Finding("ok", "prepare.prompts", str(note)) for note in content.get("notes") or ()]
    dropped = content.get("dropped") or []
    if dropped:
        ids = some([f"{row.get('prompt_id')} ({row.get('why')})" for row in dropped])
        found.append(Finding("warning", "prepare.prompts", f"{len(dropped)} prompts are dropped: {ids}"))
    golden: dict[str, Any] = content.get("golden") or {}
    if golden:
        found.append(golden_answers(golden))
    duplicates = content.get("duplicates") or 0
    repeated = sum(duplicates.values()) if isinstance(duplicates, dict) else duplicates
    if repeated:
        text = f"{repeated} prompts repeat another one; each is a prompt of its own"
        found.append(Finding("ok", "prepare.prompts", text))
    return found


def golden_answers(golden: dict[str, Any]) -> Finding:
    """Those that their own verifier does not give the full reward."""
    failing, place = golden.get("failing") or [], "prepare.prompts.verify"
    text = f"{len(failing)} of {golden.get('checked')} golden answers do not get the full reward"
    if not failing:
        return Finding("ok", place, text)
    first = some([f"{row.get('prompt_id')} ({row.get('message')})" for row in failing])
    return Finding("warning", place, f"{text}: {first}; mend the answers, the verifier or `completion`")


def stopping(params: Params) -> list[Finding]:
    """Which tokens end an answer, and which end a sequence of this model without being among them."""
    tokenizer = load_tokenizer()

    def named(ids: set[int] | frozenset[int]) -> str:
        return ", ".join(f"{tokenizer.convert_ids_to_tokens(one)} ({one})" for one in sorted(ids))

    ids, ends = stop_ids(tokenizer, params.rollout), ends_of_model()
    found = [Finding("ok", "rollout.stop_tokens", f"an answer ends with {named(ids)}")]
    if ends - ids:
        text = f"the model ends a sequence with {named(ends - ids)}, too; add them if an answer should end there"
        found.append(Finding("warning", "rollout.stop_tokens", text))
    return found


def ends_of_model() -> set[int]:
    """End-of-sequence ids that the model's files name."""
    found = set(read_json(paths.MODEL_JSON).get("eos_ids") or ())
    for name in ("config.json", "generation_config.json"):
        ids = read_json(paths.REFERENCE / name).get("eos_token_id")
        found |= {ids} if isinstance(ids, int) else set(ids or ())
    return found


def some(found: list[Any] | dict[str, Any]) -> str:
    """The first few, and how many more there are."""
    items = [f"{name} {value}" for name, value in found.items()] if isinstance(found, dict) else found
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(map(str, items[:SHOWN])) + more
