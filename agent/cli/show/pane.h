#ifndef RESEAT_AGENT_CLI_SHOW_PANE_H
#define RESEAT_AGENT_CLI_SHOW_PANE_H

#include "agent/cli/show/output.h"

/* A table on a part of the screen (curses), in which one line is selected. */

struct pane {
    const char *key; /**< The member by which commands know an entry. */
    const struct table_column *columns;
    bool (*matches)(const struct output *output, const json_t *entry);
    struct output output; /**< With its view. */
    char sort[PROTOCOL_WORD_MAX];
    size_t sorted; /**< Number of the column in `sort`, from 1. */
    json_t *list;
    struct table_lines shown;
    bool stale; /**< `shown` has to be made anew. */
    char selected[PROTOCOL_WORD_MAX];
    size_t at, first, height; /**< The selected line, and those on the screen. */
};

/** The selected entry, borrowed; NULL: there is none. */
const json_t *pane_selected(const struct pane *pane);
/** If the pane is stale, lay the list out. The same entry stays selected, wherever it is now. */
void pane_lay_out(struct pane *pane);
/** Select another line, if that is what the key is for. Returns false if not. */
bool pane_scroll(struct pane *pane, int key);
/** Sort by the column that is @step columns after the one that the list is sorted by. */
void pane_sort(struct pane *pane, int step);
/** Sort in the other direction. */
void pane_reverse(struct pane *pane);
/** Draw the titles at @row, and @height entries below. */
void pane_draw(struct pane *pane, int row, size_t height, bool focused);
/** Release the list. */
void pane_finish(struct pane *pane);

/** Draw the first line of a text, made safe and cut. Returns the text after it. */
const char *pane_draw_line(int row, int column, const char *text);

#endif
