"""The critic's part of the stage `update`: critic i-1, the iteration's returns -> critic i, critic_steps.parquet."""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.critic import OPTIMIZER, CriticError, described, write_marker
from stages.common.files import publish
from stages.common.fingerprint import file_hash
from stages.common.gate import check_returns
from stages.common.journal import Journal
from stages.common.kept.steps import state_of
from stages.common.optimizer import StoredAdamW
from stages.common.params import Critic as Options
from stages.common.params import Params
from stages.common.policy import Models, trainable
from stages.common.seeds import seed_of
from stages.common.tables import CRITIC_STEPS, write_table
from stages.critic.checkpoint import save_next
from stages.critic.train import train, work_of


def check_critic(name: str, rows: pl.DataFrame, options: Options | None) -> None:
    """Refuse, before anything is trained, another critic than params.yaml speaks of, or rows without returns."""
    if options is None:
        return
    before = paths.critic(paths.previous(name))
    if described(before) != {"initial": options.initial, "method": options.method}:
        raise CriticError(f"{before} is not the critic that params.yaml asks for: run `dvc repro`, which makes it anew")
    check_returns(rows)


def update_critic(name: str, rows: pl.DataFrame, params: Params, models: Models, journal: Journal) -> None:
    """Train on the rows that have returns. Without a critic: the folder says so, and the table is empty."""
    steps: list[dict[str, Any]] = []
    if params.critic is None:
        with publish(paths.critic(name)) as scratch:
            write_marker(scratch, None)
    else:
        steps = _train(name, rows, params.critic, params.seed, models, journal)
    frame = pl.DataFrame(steps, schema=CRITIC_STEPS)
    write_table(frame, CRITIC_STEPS, ("iteration", "step"), paths.critic_steps(name))
    if steps and steps[-1]["value_loss"] is not None:
        journal.say(f"value loss {steps[-1]['value_loss']:.4f}, {steps[-1]['tokens']} tokens")


def _train(
    name: str, rows: pl.DataFrame, options: Options, seed: int, models: Models, journal: Journal
) -> list[dict[str, Any]]:
    before, iteration = paths.critic(paths.previous(name)), paths.iteration_number(name)
    critic = models.critic(before)
    assert critic is not None, "check_critic() has seen it"
    optimizer = StoredAdamW(trainable(critic.model), options)
    optimizer.load(before / OPTIMIZER)
    content = {"critic": options.model_dump(mode="json"), "seed": seed, "iteration": iteration}
    content |= {"optimizer": file_hash(before / OPTIMIZER)}
    state = state_of(work_of(critic, rows, content), optimizer)
    models.critic_changed(None)
    with publish(paths.critic(name)) as scratch:
        scratch.mkdir()
        steps = train(
            critic,
            optimizer,
            rows,
            epochs=options.epochs,
            steps=options.minibatches,
            clip=options.value_clip,
            pack_tokens=options.pack_tokens,
            checkpointed=options.gradient_checkpointing,
            iteration=iteration,
            seed=seed_of(seed, "critic", iteration),
            journal=journal,
            state=state,
            save_to=scratch / OPTIMIZER,
        )
        save_next(critic, optimizer, before, scratch)
    models.critic_changed(paths.critic(name))
    return steps
