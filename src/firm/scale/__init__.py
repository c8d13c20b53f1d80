"""Beyond one process and one runtime: many machines, arrays larger than memory, and files for other runtimes."""
