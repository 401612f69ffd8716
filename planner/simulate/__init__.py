"""Run the streams of a plan on a clock: timeline, peak bytes, bubble, trace."""
