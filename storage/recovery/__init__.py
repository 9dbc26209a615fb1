"""Recovery at the start: check, rebuild and complete the files, or leave a log offline."""
