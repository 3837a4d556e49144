"""The command `dasp`: `main` finds the command, the other files hold the commands by topic."""
