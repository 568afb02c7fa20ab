"""A picture of who held how much of which device, over time, as SVG."""

from timeline import COLOURS, _text, _ticks

WIDTH, ROW, GAP, LEFT, RIGHT, TOP, BOTTOM = 960, 110, 34, 96, 24, 64, 56
TEXT_WIDTH = 60


def _spans(samples, last, inside):
    """[(from, to, value)] while @inside(world) is not None, joined where it stays the same."""
    spans = []
    for index, (when, world) in enumerate(samples):
        value = inside(world)
        until = samples[index + 1][0] if index + 1 < len(samples) else last
        if value is None:
            continue
        if spans and spans[-1][1] == when and spans[-1][2] == value:
            spans[-1] = (spans[-1][0], until, value)
        else:
            spans.append((when, until, value))
    return spans


def write_occupancy(path, devices, samples):
    """
    Write the picture to @path.

    devices: [(name, MiB)]; samples: [(seconds, {program: (state, device or None, MiB)})].
    """
    last = samples[-1][0]
    programs = list(dict.fromkeys(name for _, world in samples for name in world))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(programs)}
    rows = [*devices, (None, None)]
    height = TOP + len(rows) * (ROW + GAP) + BOTTOM

    def x_of(seconds):
        return LEFT + seconds / last * (WIDTH - LEFT - RIGHT)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           f'width="{WIDTH}" height="{height}" font-family="DejaVu Sans, Helvetica, sans-serif">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           _text(LEFT, 26, "Who holds what: a program grows, is upgraded, displaced, and comes back",
                 16, "start", "#111", "bold")]
    for index, name in enumerate(programs):
        out.append(f'<rect x="{LEFT + 130 * index}" y="38" width="12" height="12" '
                   f'fill="{colour[name]}"/>')
        out.append(_text(LEFT + 130 * index + 18, 49, name, anchor="start"))
    for index, (device, mib) in enumerate(rows):
        top = TOP + index * (ROW + GAP)
        out.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{ROW}" '
                   'fill="#f6f6f6" stroke="#ccc"/>')
        out.append(_text(LEFT - 10, top + ROW / 2, device or "no device", 13, "end", "#111"))
        if mib:
            out.append(_text(LEFT - 10, top + ROW / 2 + 16, f"{mib} MiB", 11, "end", "#777"))
        for position, name in enumerate(programs):
            def inside(world, who=name, before=position, where=device, whole=mib):
                if who not in world or world[who][1] != where:
                    return None
                if not whole:  # without a device: beside each other
                    return before / len(programs), 1 / len(programs), world[who][0]
                # Programs on one device stand on each other.
                under = sum(round(world[other][2]) for other in programs[:before]
                            if other in world and world[other][1] == where)
                return under / whole, round(world[who][2]) / whole, ""
            for begin, end, (base, share, text) in _spans(samples, last, inside):
                width = x_of(end) - x_of(begin)
                out.append(f'<rect x="{x_of(begin):.1f}" y="{top + ROW * (1 - base - share):.1f}" '
                           f'width="{width:.1f}" height="{ROW * share:.1f}" '
                           f'fill="{colour[name]}" fill-opacity="{0.85 if mib else 0.35}"/>')
                if text and width > TEXT_WIDTH:
                    out.append(_text(x_of(begin) + width / 2,
                                     top + ROW * (1 - base - share / 2) + 4, text))
    for seconds in _ticks(last, 12):
        out.append(_text(x_of(seconds), height - BOTTOM + 14, f"{seconds:g}"))
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, height - 14, "seconds", 13))
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")
