#include "remote/link/link.h"

#include <errno.h>
#include <sys/socket.h>

#include <linux/vm_sockets.h>

#include "remote/link/socket.h"
#include "remote/link/tls.h"

static struct sockaddr_vm link_vsock_socket_address(const struct address *address)
{
    return (struct sockaddr_vm){
        .svm_family = AF_VSOCK, .svm_cid = address->cid, .svm_port = address->port};
}

static int link_vsock_dial(const struct address *address, uint64_t deadline_ns,
                           struct owned *ret_socket)
{
    const struct sockaddr_vm to = link_vsock_socket_address(address);

    if (address->cid == VMADDR_CID_ANY)
        return -EINVAL;
    return socket_connect((const struct sockaddr *)&to, sizeof(to), deadline_ns, ret_socket);
}

static int link_vsock_connect(const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                              struct link **ret_link)
{
    return tls_connect_to("vsock", where, link_vsock_dial, ticket, deadline_ns, ret_link);
}

static int link_vsock_listen(const char *where, int *ret_fd)
{
    struct address address;
    int error = tls_listen_address("vsock", where, &address);

    if (error)
        return error;
    const struct sockaddr_vm at = link_vsock_socket_address(&address);
    return socket_listen((const struct sockaddr *)&at, sizeof(at), ret_fd);
}

static int link_vsock_admit(int fd, uint64_t deadline_ns, struct link **ret_link)
{
    struct owned socket;
    int error = owned_take(fd, &socket);

    return error ? error : tls_admit(&socket, deadline_ns, ret_link);
}

const struct link_kind link_vsock = {
    .scheme = "vsock",
    .anyone = true,
    .connect = link_vsock_connect,
    .listen = link_vsock_listen,
    .admit = link_vsock_admit,
};
