"""The learning rate over the steps of a run."""

from stages.common.params import Schedule


def learning_rate(step: int, peak: float, schedule: Schedule) -> float:
    """Rate of optimizer step `step`, counted from 1 over the whole run; independent of how many are planned."""
    warm = min(1.0, step / schedule.warmup) if schedule.warmup else 1.0
    if schedule.horizon is None:
        return peak * warm
    done = (step - max(1, schedule.warmup)) / (schedule.horizon - max(1, schedule.warmup))
    return peak * min(warm, 1.0 - (1.0 - schedule.floor) * min(1.0, max(0.0, done)))
