#include "tests/remote/link/tls_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/link/link.h"

void rig_issue(const struct rig *rig, const char *name, time_t now, char ret_path[RIG_NAME_MAX])
{
    char problem[FOLDER_PROBLEM_MAX];
    struct ca_wish wish = {.name = name, .grant = GRANT_ALL, .days = 30, .to_file = ret_path};

    snprintf(ret_path, RIG_NAME_MAX, "%s/%s.pem", rig->folder, name);
    wish.grant.sessions = 7;
    cr_assert_eq(ca_issue(rig->ca, &wish, now, problem), 0, "%s", problem);
}

void rig_init(struct rig *rig)
{
    char problem[FOLDER_PROBLEM_MAX];

    *rig = (struct rig){.listener = -1};
    folder_make(rig->folder);
    snprintf(rig->ca, sizeof(rig->ca), "%s/ca", rig->folder);
    cr_assert_eq(ca_create(rig->ca, "gpuhost", time(NULL), problem), 0, "%s", problem);
    rig_issue(rig, "laptop", time(NULL), rig->client);
    setenv("RESEAT_CREDENTIALS", rig->client, 1);
    cr_assert_eq(tls_server_open(rig->ca, problem), 0, "%s", problem);
}

struct credentials rig_load(const char *path)
{
    char problem[FOLDER_PROBLEM_MAX];
    struct credentials credentials;

    cr_assert_eq(credentials_load(path, &credentials, problem), 0, "%s", problem);
    return credentials;
}

void rig_listen(struct rig *rig)
{
    struct sockaddr_in address;
    socklen_t size = sizeof(address);

    cr_assert_eq(link_tcp.listen("127.0.0.1:0", &rig->listener), 0);
    cr_assert_eq(getsockname(rig->listener, (struct sockaddr *)&address, &size), 0);
    rig->port = ntohs(address.sin_port);
}

void rig_finish(struct rig *rig)
{
    if (rig->listener >= 0)
        close(rig->listener);
    tls_server_close();
}

static void *run_admission(void *data)
{
    struct admission *admission = data;
    const struct link_kind *kind = admission->kind ? admission->kind : &link_tcp;

    if (admission->fd < 0) {
        struct pollfd poll_for = {.fd = admission->listener, .events = POLLIN};
        poll(&poll_for, 1, 60000);
        admission->fd = accept4(admission->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    admission->result = admission->fd < 0
                            ? -ENOTCONN
                            : kind->admit(admission->fd, admission->deadline_ns, &admission->link);
    snprintf(admission->reason, sizeof(admission->reason), "%s", tls_reason());
    return NULL;
}

static void *run_pair_admission(void *data)
{
    struct admission *admission = data;
    struct owned socket = owned_of(admission->fd);

    admission->result = tls_admit(&socket, admission->deadline_ns, &admission->link);
    snprintf(admission->reason, sizeof(admission->reason), "%s", tls_reason());
    return NULL;
}

void admission_begin(struct admission *admission)
{
    cr_assert_eq(pthread_create(&admission->thread, NULL, run_admission, admission), 0);
}

int admission_end(struct admission *admission)
{
    pthread_join(admission->thread, NULL);
    return admission->result;
}

struct ends ends_over(const struct credentials *credentials, int client, int server)
{
    struct admission admission = {.fd = server, .deadline_ns = rig_soon()};
    struct owned socket = owned_of(client);
    struct ends ends = {0};

    cr_assert_eq(pthread_create(&admission.thread, NULL, run_pair_admission, &admission), 0);
    ends.connected = tls_connect(&socket, credentials, NULL, rig_soon(), &ends.client);
    snprintf(ends.client_reason, sizeof(ends.client_reason), "%s", tls_reason());
    ends.admitted = admission_end(&admission);
    ends.server = admission.link;
    memcpy(ends.server_reason, admission.reason, sizeof(ends.server_reason));
    return ends;
}

struct ends ends_make(const struct credentials *credentials)
{
    int fds[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    return ends_over(credentials, fds[0], fds[1]);
}

struct ends ends_made(const struct rig *rig)
{
    struct credentials credentials = rig_load(rig->client);
    struct ends ends = ends_make(&credentials);

    credentials_finish(&credentials);
    cr_assert_eq(ends.connected, 0, "%s", ends.client_reason);
    cr_assert_eq(ends.admitted, 0, "%s", ends.server_reason);
    return ends;
}

void ends_finish(struct ends *ends)
{
    if (ends->client)
        ends->client->ops->destroy(ends->client);
    if (ends->server)
        ends->server->ops->destroy(ends->server);
}

int rig_send(struct link *link, const void *bytes, size_t size, uint64_t deadline_ns)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, size};

    return link->ops->send(link, &iov, 1, deadline_ns);
}

int rig_receive(struct link *link, void *bytes, size_t size, uint64_t deadline_ns)
{
    size_t count = 0;

    for (size_t used = 0; used < size; used += count) {
        int error =
            link->ops->receive(link, (char *)bytes + used, size - used, deadline_ns, &count);
        if (error)
            return error;
    }
    return 0;
}

int rig_dial(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}
