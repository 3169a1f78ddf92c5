"""Which options go together across sections; each rule raises a ValueError that names the options and a way out."""

from stages.common.params.rules import compute, kl, prompts, rewards, training

RULES = (*compute.RULES, *prompts.RULES, *kl.RULES, *rewards.RULES, *training.RULES)
