print("admin")
