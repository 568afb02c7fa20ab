#ifndef RESEAT_TESTS_STATE_OBJECT_TEST_PINS_COMMON_H
#define RESEAT_TESTS_STATE_OBJECT_TEST_PINS_COMMON_H

#include "tests/support/cases.h"

#include "tests/support/engine_rig.h"

/* What the two parts of the suite share: whether the first virtual device can be moved. On POCL's
 * devices. */

#define WORDS 256
#define SIZE  (WORDS * sizeof(cl_uint))

/* POCL lists basic first. */
static inline const char *other(const struct engine_rig *rig)
{
    return rig->devices[the_vdevs[0]->origin == rig->devices[0] ? 1 : 0]->key.device;
}

static inline const char *pinned(void)
{
    static struct vdev_status status;
    status_vdev(0, &status);
    return status.pinned;
}

static inline void expect_refused(const struct engine_rig *rig, const char *word)
{
    const char *const places[] = {other(rig), NULL};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        struct move_report report;
        cr_assert_eq(engine_rig_move(rig, places[i], &report), MOVE_REFUSED, "%s",
                     move_result_name(report.result));
        cr_assert_eq(report.reached, MOVE_PLAN);
        cr_assert(strstr(report.reason, "pinned") && strstr(report.reason, word), "%s",
                  report.reason);
    }
    cr_assert(pinned() && strstr(pinned(), word), "%s", pinned());
}

static inline void expect_free(const struct engine_rig *rig)
{
    cr_assert_null(pinned(), "%s", pinned());
    engine_rig_moves(rig, other(rig));
    engine_rig_moves(rig, the_vdevs[0]->origin->key.device);
}

#endif
