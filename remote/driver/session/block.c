#include "remote/driver/session/session.h"
#include "remote/wire/stream.h"

#include <errno.h>

#include "state/base/clock.h"

/* Before a large area is made, idle areas beyond KEPT_BYTES are unmapped. */
#define KEPT_BYTES  (UINT64_C(512) << 20)
#define LARGE_BYTES ((size_t)16 << 20)
#define SEND_NS     (10 * NS_PER_S)

/* Over the link, so that the server expects it when it reads the message. */
static int block_send_descriptor(struct client *client, uint32_t area, int fd)
{
    return greeting_send_descriptor(client->stream.link, MSG_OFFER, area, fd,
                                    clock_now_ns() + SEND_NS);
}

static int block_offer(void *data, uint32_t area, int fd, size_t size)
{
    struct client *client = data;
    struct call *call = call_create(client);
    if (!call)
        return -ENOMEM;
    /* In one order on both ways. */
    pthread_mutex_lock(&client->offering);
    int error = block_send_descriptor(client, area, fd);
    cl_int asked = error
                       ? CL_OUT_OF_HOST_MEMORY
                       : POST(client, offer, {.area = area, .size = size, .call = handle_id(call)});
    pthread_mutex_unlock(&client->offering);
    asked = call_wait(call, asked);
    handle_release(call);
    return error ? error : asked ? -ENOMEM : 0;
}

int blocks_post_descriptor(struct client *client, unsigned type, const void *body, size_t size,
                           int fd)
{
    pthread_mutex_lock(&client->offering);
    int error = block_send_descriptor(client, 0, fd);
    if (error == 0)
        error = stream_post(&client->stream, type, body, size, NULL, 0);
    pthread_mutex_unlock(&client->offering);
    return error;
}

static void block_withdraw(void *data, uint32_t area)
{
    struct client *client = data;
    (void)POST(client, withdraw, {.area = area});
}

int blocks_init(struct client *client)
{
    const struct bulk_limits limits = {WIRE_AREAS_MAX, WIRE_AREA_SIZE, WIRE_BULK_BYTES};
    const struct bulk_link link = {block_offer, block_withdraw, client};
    pthread_mutex_init(&client->offering, NULL);
    return bulk_create(&limits, &link, &client->bulk);
}

uint32_t blocks_before(const struct device_object *device)
{
    struct bulk *bulk = device->base.client->bulk;
    bool unified = device_number(device, CL_DEVICE_HOST_UNIFIED_MEMORY) ||
                   (device_number(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU);
    return bulk && !unified ? bulk_last(bulk) : 0;
}

bool block_take(struct client *client, uint32_t before, size_t size, struct bulk_block *ret_block)
{
    struct bulk *bulk = client->bulk;
    if (!bulk || size < BLOCK_LEAST || client_state(client))
        return false;
    if (size >= LARGE_BYTES)
        (void)bulk_trim(bulk, KEPT_BYTES);
    int error = bulk_take_after(bulk, before, size, ret_block);
    if (error == -ENOSPC) { /* Unmap idle areas, and try once more. */
        (void)bulk_trim(bulk, 0);
        error = bulk_take_after(bulk, before, size, ret_block);
    }
    return error == 0 || bulk_take(bulk, size, ret_block) == 0;
}

void block_give(struct client *client, struct bulk_block *block)
{
    if (block->size)
        bulk_give(client->bulk, block);
    *block = (struct bulk_block){0};
}

struct bulk_loan *block_lend(struct client *client, uint32_t before, size_t size, uint64_t most,
                             const atomic_uint *maps)
{
    struct bulk_block block;
    struct bulk_loan *loan = client->bulk ? bulk_loan_begin(client->bulk, size, most) : NULL;
    if (!loan)
        return NULL;
    if (block_take(client, before, size, &block)) {
        if (bulk_lend(loan, &block, maps) == 0)
            return loan;
        block_give(client, &block);
    }
    bulk_return(loan);
    return NULL;
}

bool block_find(struct client *client, const void *bytes, size_t size, uint32_t *ret_area,
                uint64_t *ret_place)
{
    return client->bulk && size >= BLOCK_LEAST &&
           bulk_find(client->bulk, bytes, size, ret_area, ret_place);
}
