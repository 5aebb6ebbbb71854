"""From rewards to advantages: pure functions of plain numbers, run in the controller."""
