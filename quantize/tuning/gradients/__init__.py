"""Gradients of operators, a rule for each; importing this package registers all of them.

They stand here, apart from their operators, since only tuning needs them: pages and other users of
a model would load them with the operators otherwise.
"""

from halfbyte.quantize.tuning.gradients import attention, elementwise, linear, norms
from halfbyte.quantize.tuning.gradients.loss import divergence
from halfbyte.quantize.tuning.gradients.rules import RULES, Rule, rule

__all__ = ["RULES", "Rule", "attention", "divergence", "elementwise", "linear", "norms", "rule"]
