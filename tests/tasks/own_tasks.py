"""Tasks as a user would write them; the tests name this file as ``own_tasks.py:Class``."""

import torch

from firm.operators import Operator
from firm.tasks import BaseTask, Parameter


class Scaled:
    """No module, no closed form; one factor per sample, or one for all."""

    def __init__(self, factor, wrong=1.0):
        self.factor, self.wrong = factor.reshape(-1, 1, 1, 1), wrong

    def A(self, x):
        return self.factor * x

    def A_adjoint(self, y):
        return self.wrong * self.factor * y


class Gain(BaseTask):
    gain = Parameter(float, "factor of the pixels", 0.5, low=0, above=True, drawn="uniform")
    power = Parameter(int, "power of the factor", 1, low=1, high=4, drawn="uniform")
    note = Parameter(str, "what it is for", "nothing")

    def build(self, values):
        assert sorted(values) == ["gain", "power"]  # numbers of the operator, and nothing else
        return Scaled(values["gain"] ** values["power"])


class WrongAdjoint(Gain):
    def build(self, values):
        return Scaled(values["gain"], wrong=1.5)


class ClosedScaled(Scaled):
    def prox_l2(self, z, y, gamma):
        return (gamma * self.factor * y + z) / (gamma * self.factor**2 + 1)


class ClosedGain(Gain):
    def build(self, values):
        return ClosedScaled(values["gain"])


class WrongAdjointWithProx(Gain):
    def build(self, values):
        return ClosedScaled(values["gain"], wrong=-1.0)


class Coils(BaseTask):
    """A complex buffer, as the sensitivities of coils in MRI."""

    def build(self, values):
        return CoilOperator()


class CoilOperator(Operator):
    def __init__(self):
        super().__init__()
        phase = torch.arange(64.0).reshape(8, 8) / 10
        self.register_buffer("sensitivity", torch.polar(torch.ones(8, 8), phase))

    def A(self, x):
        return self.sensitivity * x

    def A_adjoint(self, y):
        return (self.sensitivity.conj() * y).real


class NoBuild(BaseTask):
    pass
