#include <avahi-client/client.h>
#include <avahi-client/lookup.h>
#include <avahi-client/publish.h>
#include <avahi-common/alternative.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/simple-watch.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "state/base/bytes/text.h"
#include "state/server/news.h"

/*
 * reseat-mdns announce NAME PORT: announce a device server in the local network for as long as
 * standard input is open.
 *
 * reseat-mdns browse: write a struct server_news with its address to standard output for each
 * server announced. Announcements are not authenticated: the reader has to verify a server by other
 * means.
 *
 * This is a separate program so that no other part of reseat depends on Avahi.
 */

#define SERVICE     "_reseat._tcp"
#define RETRY_MS    5000
#define HOST_MAX    240
#define RESOLVE_MAX 64 /* Resolvers running at a time; further announcements are ignored. */

struct mdns {
    AvahiSimplePoll *poll;
    AvahiClient *client;
    AvahiEntryGroup *group;
    AvahiServiceBrowser *browser;
    char *name; /* Name of the service to announce; NULL when browsing. */
    uint16_t port;
    unsigned resolving;
    char problem[256]; /* The last problem reported. */
};

static void mdns_send(struct server_news *news)
{
    if (server_news_write(news, STDOUT_FILENO))
        _exit(0); /* The reader has closed the pipe. */
}

static void mdns_tell_found(const char *host, uint16_t port)
{
    struct server_news news = {.code = ""};

    if (strlen(host) >= HOST_MAX || !text_is_safe(host, strlen(host)))
        return;
    snprintf(news.address, sizeof(news.address), "tcp:%s:%u", host, port);
    mdns_send(&news);
}

/** Report the state: as news when browsing, as a line on standard error when announcing. */
static void mdns_tell_state(struct mdns *mdns, const char *problem)
{
    struct server_news news = {.code = ""};

    if (mdns->name) {
        if (problem[0] && strcmp(problem, mdns->problem) != 0)
            fprintf(stderr, "reseat-mdns: %s is not announced: %s\n", mdns->name, problem);
    } else {
        strcpy(news.code, problem[0] ? "avahi" : "");
        snprintf(news.problem, sizeof(news.problem), "%s", problem);
        mdns_send(&news);
    }
    snprintf(mdns->problem, sizeof(mdns->problem), "%s", problem);
}

/* ---- announce ---- */

static void mdns_announce(struct mdns *mdns);

static void mdns_group_changed(AvahiEntryGroup *group, AvahiEntryGroupState state, void *data)
{
    struct mdns *mdns = data;

    mdns->group = group;
    if (state == AVAHI_ENTRY_GROUP_COLLISION) {
        char *other = avahi_alternative_service_name(mdns->name);
        avahi_free(mdns->name);
        mdns->name = other;
        mdns_announce(mdns);
    } else if (state == AVAHI_ENTRY_GROUP_FAILURE) {
        mdns_tell_state(mdns, avahi_strerror(avahi_client_errno(mdns->client)));
    }
}

static void mdns_announce(struct mdns *mdns)
{
    int error = 0;

    if (!mdns->group)
        mdns->group = avahi_entry_group_new(mdns->client, mdns_group_changed, mdns);
    if (!mdns->group) {
        mdns_tell_state(mdns, avahi_strerror(avahi_client_errno(mdns->client)));
        return;
    }
    avahi_entry_group_reset(mdns->group);
    do {
        error = avahi_entry_group_add_service(mdns->group, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC, 0,
                                              mdns->name, SERVICE, NULL, NULL, mdns->port, NULL);
        if (error == AVAHI_ERR_COLLISION) {
            char *other = avahi_alternative_service_name(mdns->name);
            avahi_free(mdns->name);
            mdns->name = other;
        }
    } while (error == AVAHI_ERR_COLLISION);
    error = error ? error : avahi_entry_group_commit(mdns->group);
    if (error)
        mdns_tell_state(mdns, avahi_strerror(error));
}

/* ---- browse ---- */

static void mdns_resolved(AvahiServiceResolver *resolver, AvahiIfIndex interface,
                          AvahiProtocol protocol, AvahiResolverEvent event, const char *name,
                          const char *type, const char *domain, const char *host,
                          const AvahiAddress *address, uint16_t port, AvahiStringList *text,
                          AvahiLookupResultFlags flags, void *data)
{
    struct mdns *mdns = data;

    (void)interface, (void)protocol, (void)name, (void)type, (void)domain, (void)address;
    (void)text, (void)flags;
    if (event == AVAHI_RESOLVER_FOUND)
        mdns_tell_found(host, port);
    mdns->resolving--;
    avahi_service_resolver_free(resolver);
}

static void mdns_browsed(AvahiServiceBrowser *browser, AvahiIfIndex interface,
                         AvahiProtocol protocol, AvahiBrowserEvent event, const char *name,
                         const char *type, const char *domain, AvahiLookupResultFlags flags,
                         void *data)
{
    struct mdns *mdns = data;

    (void)browser, (void)flags;
    if (event == AVAHI_BROWSER_FAILURE)
        mdns_tell_state(mdns, avahi_strerror(avahi_client_errno(mdns->client)));
    if (event != AVAHI_BROWSER_NEW || mdns->resolving >= RESOLVE_MAX)
        return;
    mdns->resolving +=
        avahi_service_resolver_new(mdns->client, interface, protocol, name, type, domain,
                                   AVAHI_PROTO_UNSPEC, 0, mdns_resolved, mdns) != NULL;
}

/* ---- common ---- */

static void mdns_client_changed(AvahiClient *client, AvahiClientState state, void *data)
{
    struct mdns *mdns = data;

    mdns->client = client;
    if (state == AVAHI_CLIENT_S_RUNNING) {
        if (mdns->name)
            mdns_announce(mdns);
        else if (!mdns->browser)
            mdns->browser = avahi_service_browser_new(client, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC,
                                                      SERVICE, NULL, 0, mdns_browsed, mdns);
        mdns_tell_state(mdns, mdns->name || mdns->browser ? "" : "Avahi does not browse");
    } else if (state == AVAHI_CLIENT_FAILURE) {
        avahi_simple_poll_quit(mdns->poll);
    } else if (mdns->name && mdns->group) {
        /*
         * The host's name or addresses are changing: withdraw the service until Avahi runs again.
         */
        avahi_entry_group_reset(mdns->group);
    }
}

/** Poll with standard input added: its end ends the process. */
static int mdns_poll_input(struct pollfd *polls, unsigned count, int timeout_ms, void *data)
{
    struct pollfd all[64];
    char word[64];

    (void)data;
    if (count >= ARRAY_SIZE(all))
        return poll(polls, count, timeout_ms);
    memcpy(all, polls, count * sizeof(*polls));
    all[count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    int found = poll(all, count + 1, timeout_ms);
    if (found > 0 && all[count].revents) {
        if (read(STDIN_FILENO, word, sizeof(word)) <= 0)
            _exit(0);
        found--;
    }
    memcpy(polls, all, count * sizeof(*polls));
    return found;
}

static void mdns_run_once(struct mdns *mdns)
{
    int error = 0;

    mdns->group = NULL;
    mdns->browser = NULL;
    mdns->resolving = 0;
    mdns->poll = avahi_simple_poll_new();
    if (!mdns->poll)
        return;
    avahi_simple_poll_set_func(mdns->poll, mdns_poll_input, NULL);
    mdns->client =
        avahi_client_new(avahi_simple_poll_get(mdns->poll), 0, mdns_client_changed, mdns, &error);
    if (mdns->client) {
        avahi_simple_poll_loop(mdns->poll);
        error = avahi_client_errno(mdns->client);
        avahi_client_free(mdns->client);
    }
    avahi_simple_poll_free(mdns->poll);
    char problem[256];
    snprintf(problem, sizeof(problem), "Avahi cannot be used: %s",
             error ? avahi_strerror(error) : "it ended");
    mdns_tell_state(mdns, problem);
}

static bool mdns_read_arguments(int argc, char **argv, struct mdns *mdns)
{
    char *end = NULL;

    if (argc == 2 && !strcmp(argv[1], "browse"))
        return true;
    if (argc != 4 || strcmp(argv[1], "announce") != 0)
        return false;
    unsigned long port = strtoul(argv[3], &end, 10);
    mdns->port = (uint16_t)port;
    mdns->name = avahi_strdup(argv[2]);
    return mdns->name && end != argv[3] && !*end && port && port <= UINT16_MAX;
}

int main(int argc, char **argv)
{
    struct mdns mdns = {.poll = NULL};

    if (!mdns_read_arguments(argc, argv, &mdns)) {
        fprintf(stderr, "usage: reseat-mdns announce NAME PORT | reseat-mdns browse\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        struct pollfd none = {.fd = -1};
        mdns_run_once(&mdns);
        (void)mdns_poll_input(&none, 0, RETRY_MS, NULL);
    }
}
