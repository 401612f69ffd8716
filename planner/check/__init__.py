"""Is this plan legal? Structure and deadlock from the plan alone, memory from plan and problem."""
