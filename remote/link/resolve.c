#include "remote/link/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/** A query, shared by the caller and the thread that resolves it. If the caller gives up, the
 * thread frees it. */
struct question {
    char host[ADDRESS_HOST_MAX], port[8];
    struct addrinfo hints;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done, given_up;    /**< Guarded by the lock, as are the next fields. */
    int result;             /**< The result of getaddrinfo(). */
    struct addrinfo *found; /**< Freed with the question, unless it was taken. */
};

static void resolve_question_free(struct question *question)
{
    if (question->found)
        freeaddrinfo(question->found);
    pthread_cond_destroy(&question->answered);
    pthread_mutex_destroy(&question->lock);
    free(question);
}

static void resolve_ask(struct question *question)
{
    question->result =
        getaddrinfo(question->host, question->port, &question->hints, &question->found);
}

static void *resolve_run(void *data)
{
    struct question *question = data;
    struct addrinfo *found = NULL;
    int result = getaddrinfo(question->host, question->port, &question->hints, &found);

    pthread_mutex_lock(&question->lock);
    bool given_up = question->given_up;
    question->result = result;
    question->found = result ? NULL : found;
    question->done = true;
    pthread_cond_signal(&question->answered);
    pthread_mutex_unlock(&question->lock);
    if (given_up)
        resolve_question_free(question);
    return NULL;
}

/** Returns true if it was answered in time; else the question belongs to the thread. */
static bool resolve_await(struct question *question, uint64_t deadline_ns)
{
    pthread_mutex_lock(&question->lock);
    while (!question->done && clock_now_ns() < deadline_ns)
        (void)clock_wait(&question->answered, &question->lock,
                         deadline_ns == UINT64_MAX ? 0 : deadline_ns);
    question->given_up = !question->done;
    bool done = question->done;
    pthread_mutex_unlock(&question->lock);
    return done;
}

static int resolve_result_error(int result)
{
    return result == 0            ? 0
           : result == EAI_AGAIN  ? -EAGAIN
           : result == EAI_MEMORY ? -ENOMEM
                                  : -ENOENT;
}

static struct question *resolve_question_create(const struct address *address, bool listens)
{
    struct question *question = calloc(1, sizeof(*question));

    if (!question)
        return NULL;
    strcpy(question->host, address->host);
    snprintf(question->port, sizeof(question->port), "%u", address->port & 0xffff);
    question->hints = (struct addrinfo){.ai_family = AF_UNSPEC,
                                        .ai_socktype = SOCK_STREAM,
                                        .ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0)};
    pthread_mutex_init(&question->lock, NULL);
    pthread_cond_init(&question->answered, NULL);
    return question;
}

int resolve(const struct address *address, bool listens, uint64_t deadline_ns,
            struct addrinfo **ret_found)
{
    struct question *question = resolve_question_create(address, listens);

    if (!question)
        return -ENOMEM;
    if (address_is_name(address->host)) {
        int error = thread_start("reseat-resolve", 0, resolve_run, question, NULL);
        if (!error && !resolve_await(question, deadline_ns))
            return -ETIMEDOUT;
        if (error) {
            resolve_question_free(question);
            return error;
        }
    } else {
        question->hints.ai_flags |= AI_NUMERICHOST;
        resolve_ask(question);
    }
    int error = resolve_result_error(question->result);
    if (!error) {
        *ret_found = question->found;
        question->found = NULL;
    }
    resolve_question_free(question);
    return error;
}
