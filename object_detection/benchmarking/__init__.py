"""What measuring the speed of a detector takes: its work, times, rates, parts and roof."""
