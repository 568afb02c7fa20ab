#include "agent/cli/show/pane.h"

#include <curses.h>
#include <string.h>

#include "state/base/bytes/text.h"

const json_t *pane_selected(const struct pane *pane)
{
    return json_array_get(pane->shown.entries, pane->at);
}

static void pane_select(struct pane *pane, size_t at)
{
    size_t count = json_array_size(pane->shown.entries);

    pane->at = at < count ? at : count ? count - 1 : 0;
    snprintf(pane->selected, sizeof(pane->selected), "%s",
             member_text(pane_selected(pane), pane->key));
}

void pane_lay_out(struct pane *pane)
{
    struct table_lines lines;
    size_t at = pane->at;

    if (!pane->stale)
        return;
    pane->stale = false;
    if (output_lines(&pane->output, pane->list, pane->columns, pane->matches,
                     COLS > 2 ? (size_t)COLS - 2 : 1, &lines))
        return;
    table_lines_finish(&pane->shown);
    pane->shown = lines;
    for (size_t i = 0; i < json_array_size(lines.entries) && pane->selected[0]; i++)
        if (!strcmp(member_text(json_array_get(lines.entries, i), pane->key), pane->selected))
            at = i;
    pane_select(pane, at);
}

void pane_sort(struct pane *pane, int step)
{
    size_t count = 0;

    while (pane->columns[count].title)
        count++;
    pane->sorted = (pane->sorted + count + 1 + (size_t)step) % (count + 1);
    if (pane->sorted)
        snprintf(pane->sort, sizeof(pane->sort), "%s", pane->columns[pane->sorted - 1].title);
    pane->output.view.sort = pane->sorted ? pane->sort : NULL;
    pane->stale = true;
}

void pane_reverse(struct pane *pane)
{
    const char *sort = pane->output.view.sort;
    char other[sizeof(pane->sort)];

    if (!sort)
        return;
    snprintf(other, sizeof(other), "%s%s", *sort == '-' ? "" : "-", sort + (*sort == '-'));
    memcpy(pane->sort, other, sizeof(other));
    pane->output.view.sort = pane->sort;
    pane->stale = true;
}

bool pane_scroll(struct pane *pane, int key)
{
    long page = pane->height ? (long)pane->height : 1;
    const struct {
        int key, other;
        long lines;
    } ways[] = {{'k', KEY_UP, -1},
                {'j', KEY_DOWN, 1},
                {KEY_PPAGE, KEY_PPAGE, -page},
                {KEY_NPAGE, KEY_NPAGE, page},
                {'g', KEY_HOME, -LONG_MAX},
                {'G', KEY_END, LONG_MAX}};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        if (key == ways[i].key || key == ways[i].other) {
            long lines = ways[i].lines;
            size_t back = (size_t)-lines;
            pane_select(pane, lines >= 0         ? pane->at + (size_t)lines
                              : back <= pane->at ? pane->at - back
                                                 : 0);
            return true;
        }
    }
    return false;
}

const char *pane_draw_line(int row, int column, const char *text)
{
    size_t length = strcspn(text, "\n");
    char safe[PROTOCOL_TEXT_MAX];

    text_make_safe(safe, sizeof(safe), text, length);
    if (row >= 0 && row < LINES && column < COLS)
        mvaddnstr(row, column, safe, (int)say_fit(safe, COLS - column));
    return text + length + (text[length] == '\n');
}

void pane_draw(struct pane *pane, int row, size_t height, bool focused)
{
    const char *at = pane->shown.text ? pane->shown.text : "";
    size_t count = json_array_size(pane->shown.entries);

    pane->height = height;
    if (pane->at < pane->first)
        pane->first = pane->at;
    if (height && pane->at >= pane->first + height)
        pane->first = pane->at - height + 1;
    if (pane->first + height > count)
        pane->first = count > height ? count - height : 0;
    attron(A_BOLD);
    at = pane_draw_line(row++, 2, at);
    attroff(A_BOLD);
    for (size_t i = 0; i < pane->first; i++)
        at += strcspn(at, "\n") + 1;
    for (size_t i = pane->first; i < count && i < pane->first + height; i++, row++) {
        bool marked = i == pane->at;
        attrset(marked && focused ? A_REVERSE : A_NORMAL);
        mvaddstr(row, 0, marked ? "> " : "  ");
        at = pane_draw_line(row, 2, at);
        attrset(A_NORMAL);
    }
}

void pane_finish(struct pane *pane)
{
    json_decref(pane->list);
    table_lines_finish(&pane->shown);
}
