#include "remote/identity/crypto.h"

#include <openssl/err.h>
#include <pthread.h>
#include <stdio.h>

#include "state/base/threads/fork.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static OSSL_LIB_CTX *context;

/* The context is never freed: threads may use it until the process ends. */
static void crypto_begin(void)
{
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL))
        context = OSSL_LIB_CTX_new();
}

/* A thread of the parent may have held a lock of the context, which nobody releases in the child.
 * The child therefore makes a new context. */
static void crypto_in_child(void)
{
    once = (pthread_once_t)PTHREAD_ONCE_INIT;
    context = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = crypto_in_child};

OSSL_LIB_CTX *crypto_context(void)
{
    pthread_once(&once, crypto_begin);
    return context;
}

void crypto_problem(char ret_problem[CRYPTO_PROBLEM_MAX])
{
    unsigned long error = ERR_get_error();
    const char *reason = ERR_reason_error_string(error);

    if (reason)
        snprintf(ret_problem, CRYPTO_PROBLEM_MAX, "%s", reason);
    else
        snprintf(ret_problem, CRYPTO_PROBLEM_MAX, "OpenSSL's error %lx", error);
    ERR_clear_error();
}

int crypto_no_password(char *buffer, int size, int writing, void *data)
{
    (void)buffer, (void)size, (void)writing, (void)data;
    return -1;
}
