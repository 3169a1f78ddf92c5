"""Stage `critic initial`: reference or reward model -> critics/i0000, pretrained if params.yaml says so.

Without a critic the folder says just that.
"""

import polars as pl

from stages.common import paths
from stages.common.critic import PRETRAINING, write_marker
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.memory import release
from stages.common.optimizer import StoredAdamW
from stages.common.params import Critic as Options
from stages.common.params import Params
from stages.common.policy import Models, trainable
from stages.common.tables import CRITIC_STEPS, write_table
from stages.critic.checkpoint import save_first
from stages.critic.initial import checked_tokenizer, new_critic, source_of
from stages.critic.pretraining import pretrain, pretraining_rows


def run(_part: str, params: Params, models: Models, journal: Journal) -> None:
    if params.critic is None:
        with publish(paths.critic(paths.INITIAL)) as scratch:
            write_marker(scratch, None)
        journal.say("no critic")
    else:
        first_critic(params.critic, params, models, journal)
        release()  # a process that holds models for other stages reads the critic anew


def first_critic(options: Options, params: Params, models: Models, journal: Journal) -> None:
    source = source_of(options.initial)
    tokenizer = checked_tokenizer(source)
    pretraining = options.pretraining
    rows = (
        pretraining_rows(pretraining, params, models, journal) if pretraining else None
    )  # before there are two models
    critic = new_critic(params, models.runtime)
    optimizer = StoredAdamW(trainable(critic.model), options)
    steps = [] if rows is None else pretrain(critic, optimizer, rows, options, params, journal)
    with publish(paths.critic(paths.INITIAL)) as scratch:
        save_first(critic, optimizer, options, source, tokenizer, scratch)
        if pretraining:
            frame = pl.DataFrame(steps, schema=CRITIC_STEPS)
            write_table(frame, CRITIC_STEPS, ("iteration", "step"), scratch / PRETRAINING)
    count = sum(parameter.numel() for parameter in optimizer.parameters.values())
    journal.say(f"a copy of {source}, {options.method}: {count / 1e6:.2f} M trainable parameters")
    if steps:
        journal.say(f"value loss {steps[0]['value_loss']:.4f} -> {steps[-1]['value_loss']:.4f} in {len(steps)} steps")
