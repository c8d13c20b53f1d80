"""Training: configuration, Algorithm 1 at the speed of the hardware, checkpoints, several GPUs."""

from firm.training.config import TrainConfig as TrainConfig
from firm.training.config import load_config as load_config
from firm.training.loop import train as train
