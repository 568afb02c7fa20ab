#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "agent/config/servers.h"
#include "state/driver/inventory.h"

/* Names for shell completion. Starts no agent, and prints no error if there is none. */

#define PROGRAMS_MS 1000

/** Print the devices in the list that the last agent left. Asking an agent may start drivers. */
static void complete_print_devices(const struct paths *paths)
{
    CLEANUP(inventory_finish) struct inventory inventory = {0};
    char path[PATH_MAX];

    if (!paths_join(paths->folder, "inventory", path) && !inventory_read(path, &inventory))
        for (size_t i = 0; i < inventory.count; i++)
            puts(inventory.entries[i].name);
}

static void complete_print_programs(const struct paths *paths)
{
    CLEANUP(client_close) struct client client;
    CLEANUP(message_finish) struct message message = {.zone = NULL};
    const msgpack_object *programs;
    struct frame frame;

    frame_init(&frame, MSG_APPS);
    if (client_ask(paths, &frame, PROGRAMS_MS, &client, &message) != 1)
        return;
    size_t count = field_array(&message.root, "apps", &programs);
    for (size_t i = 0; i < count; i++) {
        char name[PROTOCOL_WORD_MAX];
        field_text(&programs[i], "name", name, sizeof(name));
        puts(name);
    }
}

static void complete_print_servers(const struct paths *paths)
{
    struct server_line lines[SERVERS_MAX];
    char folder[PATH_MAX], path[PATH_MAX];
    size_t count = 0;

    (void)paths;
    if (!paths_state(folder) && !paths_join(folder, "servers", path))
        count = servers_read(path, lines);
    for (size_t i = 0; i < count; i++)
        puts(lines[i].name);
}

static int complete_run(struct call *call)
{
    static const struct {
        const char *what;
        void (*print)(const struct paths *paths);
    } lists[] = {{"devices", complete_print_devices},
                 {"programs", complete_print_programs},
                 {"servers", complete_print_servers}};
    struct paths paths;

    if (paths_find(&paths))
        return output_done();
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        if (strcmp(call->words[0], lists[i].what) == 0)
            lists[i].print(&paths);
    return output_done();
}

const struct verb verb_complete = {
    .name = "complete",
    .arguments = "devices|programs|servers",
    .summary = "Print names for a shell to complete.",
    .plain = true,
    .hidden = true,
    .run = complete_run,
};
