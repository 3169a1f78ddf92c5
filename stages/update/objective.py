"""The objective that params.yaml names."""

from stages.common.params import Update
from stages.update.cispo import cispo
from stages.update.gspo import gspo
from stages.update.ppo import ppo
from stages.update.reinforce import reinforce
from stages.update.sapo import sapo
from stages.update.tokens import Terms, Tokens


def objective_terms(tokens: Tokens, options: Update) -> Terms:
    match options.objective:
        case "reinforce":
            return reinforce(tokens)
        case "ppo":
            return ppo(tokens, options.ppo)
        case "gspo":
            return gspo(tokens, options.gspo)
        case "cispo":
            return cispo(tokens, options.cispo)
        case "sapo":
            return sapo(tokens, options.sapo)
