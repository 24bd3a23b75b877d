"""Does the kernel answer as a real server does? Generated commands and scripts run on both and are compared."""
