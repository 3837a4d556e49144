FORMAT = "dasp-efficiency-1"
