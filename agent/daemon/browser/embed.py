#!/usr/bin/python3
"""Write the page for browsers as C, with a policy that lets only its own script and style run.

  embed.py PAGE HEADER SOURCE
"""

import base64
import hashlib
import re
import sys


def hashed(page, tag):
    """The source of a policy that allows the only element of this kind."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def main():
    path, header, source = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        page = file.read()
    policy = (f"default-src 'none'; script-src {hashed(page, 'script')}; style-src {hashed(page, 'style')}; "
              "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    guard = "RESEAT_AGENT_DAEMON_PAGE_HTML_H"
    with open(header, "w", encoding="ascii") as file:
        file.write(f"#ifndef {guard}\n#define {guard}\n\n#include <stddef.h>\n\n"
                   "extern const char page_html[];\nextern const size_t page_html_size; /* Without the NUL. */\n"
                   "extern const char page_html_policy[];\n\n#endif\n")
    with open(source, "w", encoding="ascii") as file:
        numbers = ",".join(map(str, page.encode()))
        file.write(f'#include "agent/daemon/page_html.h"\n\nconst char page_html[] = {{{numbers},0}};\n'
                   "const size_t page_html_size = sizeof(page_html) - 1;\n"
                   f'const char page_html_policy[] = "{policy}";\n')


if __name__ == "__main__":
    main()
