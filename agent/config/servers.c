#include "agent/config/servers.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/server/address.h"

static bool servers_may_begin(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9');
}

bool server_name_is_valid(const char *name)
{
    size_t length = strlen(name);

    for (const char *at = name; *at; at++)
        if (!servers_may_begin(*at) && *at != '-' && *at != '.')
            return false;
    return length && length < SERVER_NAME_MAX && servers_may_begin(name[0]);
}

bool server_address_read(const char *text, char ret_address[SERVER_ADDRESS_MAX], char *ret_reason,
                         size_t size)
{
    char reason[ADDRESS_REASON_MAX], whole[ADDRESS_TEXT_MAX];
    struct address address;

    if (strcmp(text, SERVER_ANNOUNCED) == 0) {
        memmove(ret_address, text, sizeof(SERVER_ANNOUNCED));
        return true;
    }
    if (address_parse(text, &address, reason)) {
        snprintf(ret_reason, size, "%s", reason);
        return false;
    }
    address_format(&address, whole);
    if (strlen(whole) >= SERVER_ADDRESS_MAX) {
        snprintf(ret_reason, size, "an address has at most %d bytes here", SERVER_ADDRESS_MAX - 1);
        return false;
    }
    if (address.kind == ADDRESS_TCP && !address.port) {
        snprintf(ret_reason, size, "%s: port 0 is for who listens; name the server's", whole);
        return false;
    }
    strcpy(ret_address, whole);
    return true;
}

bool server_has_credentials(const char *text, char ret_path[PATH_MAX])
{
    char reason[ADDRESS_REASON_MAX], home[PATH_MAX],
        name[sizeof("servers/.pem") + ADDRESS_HOST_MAX];
    struct address address;

    ret_path[0] = '\0';
    if (address_parse(text, &address, reason) || address.kind != ADDRESS_TCP ||
        folder_home("XDG_CONFIG_HOME", ".config", home))
        return false;
    snprintf(name, sizeof(name), "servers/%s.pem", address.host);
    return !paths_join(home, name, ret_path) && access(ret_path, F_OK) == 0;
}

bool server_name_from(const char *text, char ret_name[SERVER_NAME_MAX])
{
    char reason[ADDRESS_REASON_MAX], name[ADDRESS_HOST_MAX];
    struct address address;

    if (strcmp(text, SERVER_ANNOUNCED) == 0) {
        strcpy(ret_name, "announced");
        return true;
    }
    if (address_parse(text, &address, reason))
        return false;
    if (address.kind == ADDRESS_VSOCK)
        snprintf(name, sizeof(name), "vsock-%u", address.cid);
    else if (address.kind == ADDRESS_UNIX)
        snprintf(name, sizeof(name), "%s", strrchr(address.host, '/') + 1);
    else
        strcpy(name, address.host);
    char *suffix = strrchr(name, '.');
    if (address.kind == ADDRESS_UNIX && suffix)
        *suffix = '\0';
    else if (address.kind == ADDRESS_TCP && address_is_name(name))
        name[strcspn(name, ".")] = '\0';
    if (!server_name_is_valid(name))
        return false;
    strcpy(ret_name, name);
    return true;
}

struct server_lines {
    struct server_line *lines;
    size_t count;
};

static int servers_take(void *data, char *const words[])
{
    struct server_lines *all = data;
    struct server_line one = {.leaves = words[2] && strcmp(words[2], "leaves") == 0};
    char ignored[ADDRESS_REASON_MAX];

    if (all->count == SERVERS_MAX || !server_name_is_valid(words[0]) ||
        !server_address_read(words[1], one.address, ignored, sizeof(ignored)))
        return 0;
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->lines[i].name, words[0]) == 0)
            return 0;
    strcpy(one.name, words[0]);
    all->lines[all->count++] = one;
    return 0;
}

size_t servers_read(const char *path, struct server_line *ret_lines)
{
    struct server_lines all = {.lines = ret_lines};

    return paths_read_lines(path, 3, servers_take, &all) ? 0 : all.count;
}

static void servers_print(const void *data, FILE *out)
{
    const struct server_lines *all = data;

    for (size_t i = 0; i < all->count; i++)
        fprintf(out, "%s %s%s\n", all->lines[i].name, all->lines[i].address,
                all->lines[i].leaves ? " leaves" : "");
}

int servers_write(const char *path, struct server_line *lines, size_t count)
{
    return paths_write_lines(path, "What reseat server add and remove did.", servers_print,
                             &(struct server_lines){lines, count});
}
