#include "agent/config/servers.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/base/cleanup.h"
#include "state/base/files/file.h"
#include "state/base/files/folder.h"
#include "state/server/address.h"

#define FILE_MAX (64u << 10)

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

static bool servers_has_name(const struct server_line *lines, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(lines[i].name, name) == 0)
            return true;
    return false;
}

size_t servers_read(const char *path, struct server_line *ret_lines)
{
    CLEANUP(cleanup_free) char *text = NULL;
    char ignored[ADDRESS_REASON_MAX];
    size_t size, count = 0;

    if (paths_read(path, FILE_MAX, &text, &size))
        return 0;
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line && count < SERVERS_MAX;
         line = strsep(&rest, "\n")) {
        const char *name = strsep(&line, " "), *address = strsep(&line, " ");
        struct server_line one = {.leaves = line && strcmp(line, "leaves") == 0};
        if (!address || !server_name_is_valid(name) || servers_has_name(ret_lines, count, name) ||
            !server_address_read(address, one.address, ignored, sizeof(ignored)))
            continue;
        strcpy(one.name, name);
        ret_lines[count++] = one;
    }
    return count;
}

int servers_write(const char *path, const struct server_line *lines, size_t count)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    if (!file)
        return -errno;
    fputs("# What reseat server add and remove did. The agent writes this file.\n", file);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%s %s%s\n", lines[i].name, lines[i].address,
                lines[i].leaves ? " leaves" : "");
    if (fclose(file))
        return -ENOMEM;
    return file_replace_path(path, text, size);
}
