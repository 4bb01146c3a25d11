"""What the benches share: cases, systems, clocks, limits of the machine, truth and tables."""
