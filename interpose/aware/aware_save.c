#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/aware/aware_priv.h"
#include "state/image/checkpoint.h"

/*
 * Asks a program for its progress when an image is made. Its `save` callback runs on the library's
 * thread; reseat_save() waits within it until the image's moment, so that the progress and the
 * bytes belong to the same moment.
 */

void aware_saving_over(bool made)
{
    struct aware_saving *saving = &aware.saving;
    free(saving->bytes);
    *saving = (struct aware_saving){.serial = saving->serial + 1, .made = made};
    pthread_cond_broadcast(&aware.changed);
}

int aware_save(const void *bytes, size_t size)
{
    struct aware_saving *saving = &aware.saving;
    void *copy = size <= RESEAT_PROGRESS_MAX ? malloc(size + 1) : NULL;
    int result = size > RESEAT_PROGRESS_MAX ? RESEAT_TOO_LARGE
                 : !bytes && size           ? RESEAT_INVALID
                 : !copy                    ? RESEAT_NO_MEMORY
                                            : RESEAT_OK;
    if (result == RESEAT_OK && size)
        memcpy(copy, bytes, size);
    pthread_mutex_lock(&aware.lock);
    uint64_t serial = saving->serial;
    if (!saving->asked || saving->saved || aware.now.stage != AWARE_SAVE || aware.now.abandoned) {
        result = RESEAT_NOT_ASKED;
    } else if (result == RESEAT_OK) {
        saving->saved = true;
        saving->bytes = copy;
        saving->size = size;
        copy = NULL;
        pthread_cond_broadcast(&aware.changed);
        while (saving->serial == serial)
            aware_wait(0);
        result = saving->made && saving->serial == serial + 1 ? RESEAT_OK : RESEAT_NOT_MADE;
    } else {
        saving->too_large = result == RESEAT_TOO_LARGE;
    }
    pthread_mutex_unlock(&aware.lock);
    free(copy);
    return result;
}

static int aware_save_begin(const struct move_request *request, char *ret_reason, size_t size)
{
    pthread_mutex_lock(&aware.lock);
    bool saves = aware.registered && aware.program.save;
    int error = saves ? aware_claim(request, ret_reason, size) : 1;
    if (saves && error == 1) {
        /* The program may have unregistered meanwhile; or it has no device, and the callback would
         * wait for one forever. */
        saves = aware.registered && aware.program.save;
        aware_unclaim(request);
        if (saves) {
            snprintf(ret_reason, size,
                     "it has no device, so that it cannot be asked for its progress");
            error = -EBUSY;
        }
    }
    pthread_mutex_unlock(&aware.lock);
    return error;
}

static int aware_save_stand(const struct move_request *request, void **ret_bytes, size_t *ret_size,
                            char *ret_reason, size_t size)
{
    struct aware_saving *saving = &aware.saving;
    pthread_mutex_lock(&aware.lock);
    saving->asked = true;
    int error = aware_ask(request, AWARE_SAVE, atomic_load(&the_vdevs[0]->device), &saving->saved,
                          ret_reason, size);
    if (error == 1) {
        snprintf(ret_reason, size, "the program takes part no more");
        error = -ECANCELED;
    } else if (saving->too_large && !saving->saved) {
        snprintf(ret_reason, size, "the program's progress has more than the %zu bytes of a save",
                 RESEAT_PROGRESS_MAX);
        error = -EIO;
    } else if (error == 0 && !saving->saved) {
        snprintf(ret_reason, size, "the program's save callback saved nothing");
        error = -EIO;
    }
    if (error == 0) {
        *ret_bytes = saving->bytes;
        *ret_size = saving->size;
        saving->bytes = NULL;
    } else {
        aware_saving_over(false);
    }
    pthread_mutex_unlock(&aware.lock);
    return error;
}

static void aware_save_go_on(bool made)
{
    pthread_mutex_lock(&aware.lock);
    if (aware.saving.asked)
        aware_saving_over(made);
    pthread_mutex_unlock(&aware.lock);
}

static void aware_save_end(void)
{
    const struct move_request move = {0};
    pthread_mutex_lock(&aware.lock);
    aware_unclaim(&move);
    pthread_mutex_unlock(&aware.lock);
}

void aware_save_hook(void)
{
    static const struct checkpoint_partner partner = {.begin = aware_save_begin,
                                                      .stand = aware_save_stand,
                                                      .go_on = aware_save_go_on,
                                                      .end = aware_save_end};
    checkpoint_set_partner(&partner);
}
