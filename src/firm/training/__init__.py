"""Training: configuration, Algorithm 1 at the speed of the hardware, checkpoints, several GPUs."""

from firm.training.config import TrainConfig as TrainConfig
from firm.training.config import load_config as load_config
from firm.training.loop import train as train
from firm.training.objectives import ConfigError as ConfigError
from firm.training.objectives import TrainingError as TrainingError
