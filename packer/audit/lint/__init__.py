"""The template report: what a tokenizer and its chat template do to conversations, shown on renderings and ids.

codes        the table of codes, with their levels
findings     LintFinding, Example, LintReport
override     keys of the recipe that hints propose
probes       the conversations a template is asked about
subject      a model under a recipe, asked by rows through the stages that build
usable       errors, and the recipe the rest is found under
prompts      before an answer: headers, modes, system prompts, the clock
history      what later turns make of earlier ones
endings      stop tokens and what follows them
losses       what is left out, or shown as an answer
shapes       what is refused, or given in another form
tokens       BOS, merging borders, swallowed white space, settings of the tokenizer's file
marks        generation marks against the rule
rows         the first rows of the inputs, counted
row_findings what there is to say of them
report       all of these together
"""

from packer.audit.lint.codes import CODES, LEVELS, Code, Level
from packer.audit.lint.findings import Example, LintFinding, LintReport, LookedAt
from packer.audit.lint.report import lint

__all__ = ["CODES", "LEVELS", "Code", "Example", "Level", "LintFinding", "LintReport", "LookedAt", "lint"]
