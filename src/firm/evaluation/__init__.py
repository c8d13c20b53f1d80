"""The paper's evaluation protocol: methods over tasks and images, with resumable per-image results.

From Python, `methods_for` turns names into methods, which must compute on the device of the `Evaluation`, and
`evaluate` returns one row for each task, method and image. `firm.evaluation.report` makes tables and pictures of them.
"""

from firm.evaluation.methods import Method as Method
from firm.evaluation.methods import Methods as Methods
from firm.evaluation.methods import NamedMethod as NamedMethod
from firm.evaluation.methods import custom_method as custom_method
from firm.evaluation.methods import degraded as degraded
from firm.evaluation.methods import firm_method as firm_method
from firm.evaluation.methods import methods_for as methods_for
from firm.evaluation.methods import plain_methods as plain_methods
from firm.evaluation.methods import plain_solve as plain_solve
from firm.evaluation.run import Evaluation as Evaluation
from firm.evaluation.run import evaluate as evaluate
