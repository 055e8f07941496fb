"""What `onnxruntime` offers besides sessions: functions, backends, settings, refused names."""
