"""Pages, the calendar feed and MCP over HTTP, in front of the mirror's interface.

site.py has the routes, pages.py the request of a page and its navigation, and each `*_page.py` one
page or two. SQL is in sql/, HTML in templates/.
"""
