"""A message feed in Redis behind a web head (`zaqar-watch`, `zaqar-lua`, `zaqar-race`)."""
