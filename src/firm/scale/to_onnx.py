"""A sampler as an ONNX model: its pieces are traced once each, and put where the trace of the whole calls them.

Tracing N K copies of the network and of Fourier transforms would take many minutes, and hold the weights N K times.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from firm._model import Firm
from firm.scale.fourier import REAL
from firm.scale.traced import Network, Sampler, Work, traced


def _node(kind: str, like: Tensor, *inputs: Tensor) -> Tensor:
    """A node in the trace that stands for a piece of work with a result like `like`."""
    return torch.onnx.ops.symbolic(f"firm::{kind}", inputs, dtype=like.dtype, shape=like.shape, version=1)


class _Estimator(nn.Module):
    """Stands for the network."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config

    def forward(self, *inputs: Tensor) -> Tensor:
        """One node."""
        return _node("Network", inputs[0], *inputs)


class _Operator:
    """Stands for an operator with a closed form, of a measurement `y`."""

    closed_form = True

    def __init__(self, y: Tensor, *pattern: Tensor) -> None:
        self.y, self.pattern = y, pattern

    def A(self, x: Tensor) -> Tensor:
        """One node."""
        return _node("Measure", self.y, x, *self.pattern)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The solver has no use for it."""
        raise NotImplementedError

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """One node; gamma is that of the model's solver."""
        return _node("Solve", z, z, y, *self.pattern)


class _Outline(Sampler):
    """A sampler with nodes in the places of its pieces."""

    def __init__(self, whole: Sampler) -> None:
        model = Firm(_Estimator(getattr(whole.model.estimator, "config", {})), whole.model.solver)
        super().__init__(model, whole.stride, whole.steps, whole.task, whole.scale, whole.filter, whole.channels)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Restore, with an operator that stands for the real one."""
        self.stand_in = _Operator(inputs[0], *inputs[3:])
        return super().forward(*inputs)

    def operator(self, *pattern: Tensor) -> Any:
        """The real one makes the example, the other the trace."""
        return getattr(self, "stand_in", None) or super().operator(*pattern)


def onnx_model(work: Work, net: Network) -> Any:
    """Return the model, an ``onnx_ir.Model`` of standard operators alone."""
    if not isinstance(work, Sampler):
        return _traced(net)
    from onnx_ir.passes import Sequential, common

    outline = _traced(_Outline(work))
    for kind, piece in {"Network": net, **work.pieces()}.items():
        _define(outline, kind, _traced(piece))
    Sequential(
        common.InlinePass(), common.CommonSubexpressionEliminationPass(), common.RemoveUnusedNodesPass(),
        common.RemoveUnusedOpsetsPass(),
    )(outline)  # fmt: skip
    return outline


def _traced(work: Work) -> Any:
    """The trace of a piece of work as an ONNX model; Fourier transforms are products with matrices."""
    program = traced(work).run_decompositions(REAL)
    made = torch.onnx.export(
        program, (), dynamo=True, input_names=list(work.shapes), output_names=["image"], verbose=False
    )
    assert made is not None
    return made.model


def _define(outline: Any, kind: str, piece: Any) -> None:
    """Say what the nodes of a kind stand for: a function, whose weights are the model's and there once."""
    import onnx_ir as ir

    graph, body = outline.graph, piece.graph
    weights = list(body.initializers.values())
    body.initializers.clear()
    body.inputs.extend(weights)  # of a function, which sees nothing but its inputs
    shared = [ir.Value(name=f"{kind}.{v.name}", shape=v.shape, type=v.type, const_value=v.const_value) for v in weights]
    for value, original in zip(shared, weights, strict=True):
        graph.register_initializer(value)
        original.const_value = None
    for node in [node for node in graph if (node.domain, node.op_type) == ("firm", kind)]:
        call = ir.Node("firm", kind, [*node.inputs, *shared], num_outputs=1)
        ir.convenience.replace_nodes_and_values(graph, node, [node], [call], node.outputs, call.outputs)
    function = ir.Function("firm", kind, graph=body, attributes=[])
    outline.functions[function.identifier()] = function
