"""The parts of bench/gpu.py."""
