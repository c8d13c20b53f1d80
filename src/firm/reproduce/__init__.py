"""The paper's tables and figures, one module each, run by ``firm reproduce NAME``."""
