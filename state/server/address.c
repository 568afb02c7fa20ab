#include "state/server/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "state/base/bytes/text.h"

#define LABEL_MAX    63
#define DNS_NAME_MAX 253
#define SHOWN_MAX    128

static const char digits[] = "0123456789";
static const char hex_digits[] = "0123456789abcdef";
static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

static int address_refuse(const char *text, const char *why, char *ret_reason)
{
    char shown[SHOWN_MAX];

    text_make_safe(shown, sizeof(shown), text, strlen(text));
    snprintf(ret_reason, ADDRESS_REASON_MAX, "\"%s\" is not an address: %s", shown, why);
    return -EINVAL;
}

/** Read a decimal number without a sign. False if @text has anything but digits, or exceeds @most.
 */
static bool address_read_number(const char *text, uint64_t most, uint32_t *ret_number)
{
    uint64_t number = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
        if (number > most)
            return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

static bool address_has_only(const char *text, size_t length, const char *allowed)
{
    return strspn(text, allowed) >= length;
}

static bool address_is_label(const char *label, size_t length)
{
    if (length < 1 || length > LABEL_MAX || label[0] == '-' || label[length - 1] == '-')
        return false;
    for (size_t i = 0; i < length; i++)
        if (!strchr(letters, label[i]) && !strchr(digits, label[i]) && label[i] != '-')
            return false;
    return true;
}

/*
 * The C library's resolver accepts "127.1", "0x7f000001" and "010.0.0.1" as IPv4 addresses. A host
 * name whose last label is a number is therefore refused: text that looks like an IPv4 address must
 * be one in the usual notation.
 */
static bool address_is_number(const char *label)
{
    bool hex = label[0] == '0' && label[1] == 'x';

    return hex ? address_has_only(label + 2, strlen(label + 2), hex_digits)
               : address_has_only(label, strlen(label), digits);
}

bool address_is_name(const char *host)
{
    const char *label = host;

    if (strlen(host) > DNS_NAME_MAX)
        return false;
    for (;;) {
        size_t length = strcspn(label, ".");
        if (!address_is_label(label, length))
            return false;
        if (!label[length])
            return !address_is_number(label);
        label += length + 1;
    }
}

/** Read an IPv6 address, with an optional zone ("%eth0"), and write it in its canonical form. */
static bool address_read_v6(const char *text, char ret_host[ADDRESS_HOST_MAX])
{
    char number[INET6_ADDRSTRLEN], canonical[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "%");
    const char *zone = text[length] ? text + length + 1 : NULL;
    struct in6_addr address;

    if (length >= sizeof(number))
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    if (inet_pton(AF_INET6, number, &address) != 1 ||
        !inet_ntop(AF_INET6, &address, canonical, sizeof(canonical)))
        return false;
    if (zone && (!*zone || strlen(zone) >= IF_NAMESIZE || strpbrk(zone, "%/ []:") ||
                 !text_is_safe(zone, strlen(zone))))
        return false;
    snprintf(ret_host, ADDRESS_HOST_MAX, "%s%s%s", canonical, zone ? "%" : "", zone ? zone : "");
    return true;
}

static bool address_read_host(char *host, char ret_host[ADDRESS_HOST_MAX])
{
    struct in_addr v4;

    for (char *at = host; *at; at++)
        if (*at >= 'A' && *at <= 'Z')
            *at += 'a' - 'A';
    if (inet_pton(AF_INET, host, &v4) != 1 && !address_is_name(host))
        return false;
    strcpy(ret_host, host);
    return true;
}

static const char *address_read_tcp(const char *rest, struct address *address)
{
    char host[ADDRESS_HOST_MAX];
    bool bracketed = rest[0] == '[';
    const char *end = bracketed ? strchr(rest, ']') : strrchr(rest, ':');

    rest += bracketed;
    if (!end || (bracketed && end[1] != ':'))
        return bracketed ? "a colon and a port must follow the bracket"
                         : "a port must follow the host, as in tcp:gpuhost:7460";
    if ((size_t)(end - rest) >= sizeof(host))
        return "its host is too long";
    if (!bracketed && memchr(rest, ':', (size_t)(end - rest)))
        return "an IPv6 address must be in brackets, as in tcp:[2001:db8::1]:7460";
    memcpy(host, rest, (size_t)(end - rest));
    host[end - rest] = '\0';
    if (bracketed && !address_read_v6(host, address->host))
        return "the text in brackets is not an IPv6 address";
    if (!bracketed && !address_read_host(host, address->host))
        return "its host is neither a name nor an IPv4 address";
    if (!address_read_number(end + 1 + bracketed, UINT16_MAX, &address->port))
        return "its port must be a number up to 65535";
    return NULL;
}

static const char *address_read_vsock(const char *rest, struct address *address)
{
    static const struct {
        const char *name;
        uint32_t cid;
    } names[] = {{"host", VMADDR_CID_HOST}, {"local", VMADDR_CID_LOCAL}, {"any", VMADDR_CID_ANY}};
    const char *colon = strchr(rest, ':');
    size_t length = colon ? (size_t)(colon - rest) : 0;
    char cid[16] = "";
    bool named = false;

    if (!colon)
        return "a port must follow the CID, as in vsock:host:7460";
    if (length < sizeof(cid))
        memcpy(cid, rest, length);
    for (size_t i = 0; i < ARRAY_SIZE(names) && !named; i++) {
        named = strcmp(cid, names[i].name) == 0;
        address->cid = names[i].cid;
    }
    /* CID 0 is reserved, and VMADDR_CID_ANY, the largest number, can only be written as "any". */
    if (!named && (!address_read_number(cid, VMADDR_CID_ANY - 1, &address->cid) || !address->cid))
        return "its CID must be a number from 1, or host, local, any";
    if (!address_read_number(colon + 1, VMADDR_PORT_ANY - 1, &address->port))
        return "its port must be a number up to 4294967294";
    return NULL;
}

static const char *address_read_unix(const char *rest, struct address *address)
{
    size_t length = strlen(rest);

    if (rest[0] != '/' || rest[length - 1] == '/')
        return "an absolute path must follow unix:";
    if (length >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return "its path is longer than 107 bytes";
    if (!text_is_safe(rest, length))
        return "its path is not printable UTF-8";
    strcpy(address->host, rest);
    return NULL;
}

int address_parse(const char *text, struct address *ret_address,
                  char ret_reason[ADDRESS_REASON_MAX])
{
    static const struct {
        const char *prefix;
        enum address_kind kind;
        const char *(*read)(const char *rest, struct address *address);
    } kinds[] = {{"unix:", ADDRESS_UNIX, address_read_unix},
                 {"tcp:", ADDRESS_TCP, address_read_tcp},
                 {"vsock:", ADDRESS_VSOCK, address_read_vsock}};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct address address = {.kind = kinds[i].kind};
        size_t length = strlen(kinds[i].prefix);
        if (strncmp(text, kinds[i].prefix, length))
            continue;
        const char *why = kinds[i].read(text + length, &address);
        if (why)
            return address_refuse(text, why, ret_reason);
        *ret_address = address;
        return 0;
    }
    return address_refuse(text, "it must begin with unix:, tcp: or vsock:", ret_reason);
}

void address_format(const struct address *address, char ret_text[ADDRESS_TEXT_MAX])
{
    bool bracketed = strchr(address->host, ':') != NULL;

    if (address->kind == ADDRESS_UNIX)
        snprintf(ret_text, ADDRESS_TEXT_MAX, "unix:%s", address->host);
    else if (address->kind == ADDRESS_TCP)
        snprintf(ret_text, ADDRESS_TEXT_MAX, "tcp:%s%s%s:%u", bracketed ? "[" : "", address->host,
                 bracketed ? "]" : "", address->port);
    else if (address->cid == VMADDR_CID_ANY)
        snprintf(ret_text, ADDRESS_TEXT_MAX, "vsock:any:%u", address->port);
    else
        snprintf(ret_text, ADDRESS_TEXT_MAX, "vsock:%u:%u", address->cid, address->port);
}
