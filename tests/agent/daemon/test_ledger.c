#include "tests/support/cases.h"

#include "agent/daemon/operations/governor.h"

#define MIB      (1ull << 20)
#define DEVICES  4
#define ACCOUNTS 12

/** What the ledger should say, counted in the plainest way. */
static struct {
    struct {
        int device, target; /* -1: none. */
        uint64_t granted, held, pending;
        bool open;
    } accounts[ACCOUNTS];
} model;

static uint64_t reserved_in_model(int device)
{
    uint64_t sum = 0;

    for (int i = 0; i < ACCOUNTS; i++) {
        if (model.accounts[i].open && model.accounts[i].device == device) {
            sum += model.accounts[i].granted > model.accounts[i].held ? model.accounts[i].granted
                                                                      : model.accounts[i].held;
        }
        if (model.accounts[i].open && model.accounts[i].target == device)
            sum += model.accounts[i].pending;
    }
    return sum;
}

static uint64_t held_in_model(int device)
{
    uint64_t sum = 0;

    for (int i = 0; i < ACCOUNTS; i++) {
        sum += model.accounts[i].open && model.accounts[i].device == device ? model.accounts[i].held
                                                                            : 0;
    }
    return sum;
}

static void act(struct ledger *ledger, struct ledger_entry *accounts, int i)
{
    uint64_t bytes = (uint64_t)(random() % 1000) * MIB;
    int device = (int)(random() % (DEVICES + 1)) - 1;
    bool placed = model.accounts[i].device >= 0;

    switch (random() % 7) {
    case 0:
        ledger_place(ledger, &accounts[i], device < 0 ? LEDGER_NONE : (uint32_t)device);
        if (device != model.accounts[i].device) {
            model.accounts[i].device = device;
            model.accounts[i].granted = model.accounts[i].held = 0;
        }
        break;
    case 1:
        ledger_set_granted(ledger, &accounts[i], bytes);
        model.accounts[i].granted = placed ? bytes : 0;
        break;
    case 2:
        ledger_set_held(ledger, &accounts[i], bytes);
        model.accounts[i].held = placed ? bytes : 0;
        break;
    case 3:
        ledger_keep(ledger, &accounts[i], device < 0 ? LEDGER_NONE : (uint32_t)device, bytes);
        model.accounts[i].target = device;
        model.accounts[i].pending = device < 0 ? 0 : bytes;
        break;
    case 4:
        ledger_arrive(ledger, &accounts[i]);
        if (model.accounts[i].target >= 0) {
            bool same = model.accounts[i].device == model.accounts[i].target;
            model.accounts[i].held = same ? model.accounts[i].held : 0;
            model.accounts[i].device = model.accounts[i].target;
            model.accounts[i].granted = model.accounts[i].pending;
            model.accounts[i].target = -1;
            model.accounts[i].pending = 0;
        }
        break;
    default:
        ledger_close(ledger, &accounts[i]);
        ledger_open(ledger, &accounts[i]);
        memset(&model.accounts[i], 0, sizeof(model.accounts[i]));
        model.accounts[i].open = true;
        model.accounts[i].device = model.accounts[i].target = -1;
        break;
    }
}

Test(ledger, sums_are_those_of_the_accounts_whatever_happens)
{
    struct ledger_entry places[2][ACCOUNTS], *accounts = places[0];
    uint64_t reserved_peak[DEVICES] = {0}, held_peak[DEVICES] = {0};
    struct ledger ledger;
    char name[8];

    ledger_init(&ledger);
    for (uint32_t i = 0; i < DEVICES; i++) {
        uint32_t index;
        snprintf(name, sizeof(name), "gpu%u", i);
        cr_assert_eq(ledger_device(&ledger, name, &index), 0);
        cr_assert_eq(index, i);
    }
    for (int i = 0; i < ACCOUNTS; i++) {
        ledger_open(&ledger, &accounts[i]);
        model.accounts[i].open = true;
        model.accounts[i].device = model.accounts[i].target = -1;
    }
    srandom(5);
    for (int step = 0; step < 20000; step++) {
        act(&ledger, accounts, (int)(random() % ACCOUNTS));
        if (step % 100 == 0) {
            struct ledger_entry *left = accounts;
            accounts = left == places[0] ? places[1] : places[0];
            for (int i = 0; i < ACCOUNTS; i++)
                ledger_move(&left[i], &accounts[i]);
            memset(left, 0x5a, sizeof(places[0]));
        }
        cr_assert(ledger_check(&ledger));
        for (int i = 0; i < DEVICES; i++) {
            uint64_t reserved = reserved_in_model(i), held = held_in_model(i);
            cr_assert_eq(ledger.devices[i].reserved, reserved);
            cr_assert_eq(ledger.devices[i].held, held);
            reserved_peak[i] = reserved > reserved_peak[i] ? reserved : reserved_peak[i];
            held_peak[i] = held > held_peak[i] ? held : held_peak[i];
            cr_assert_eq(ledger.devices[i].reserved_peak, reserved_peak[i]);
            cr_assert_eq(ledger.devices[i].held_peak, held_peak[i]);
        }
    }
    for (int i = 0; i < ACCOUNTS; i++)
        ledger_close(&ledger, &accounts[i]);
    for (int i = 0; i < DEVICES; i++) {
        cr_assert_eq(ledger.devices[i].reserved, 0);
        cr_assert_eq(ledger.devices[i].accounts, 0);
    }
    /* A check that could not fail would be none. */
    ledger.devices[0].reserved++;
    cr_assert(!ledger_check(&ledger));
    ledger_finish(&ledger);
}

Test(ledger, a_device_is_found_by_its_name)
{
    struct ledger ledger;
    uint32_t first, second, again;

    ledger_init(&ledger);
    cr_assert_eq(ledger_device(&ledger, "gpu0", &first), 0);
    cr_assert_eq(ledger_device(&ledger, "gpu1", &second), 0);
    cr_assert_eq(ledger_device(&ledger, "gpu0", &again), 0);
    cr_assert_eq(again, first);
    cr_assert_neq(second, first);
    cr_assert_eq(ledger.count, 2);
    cr_assert_neq(ledger_device(&ledger, "", &again), 0);
    ledger_finish(&ledger);
}

Test(ledger, capacity_is_the_least_of_what_there_is_and_what_is_allowed)
{
    struct ledger_device device = {.own = 1000 * MIB,
                                   .limit = LEDGER_NO_LIMIT,
                                   .tight = LEDGER_NO_LIMIT,
                                   .reserved = 300 * MIB};

    cr_assert_eq(ledger_capacity(&device), 1000 * MIB);
    cr_assert_eq(ledger_free(&device), 700 * MIB);
    device.limit = 400 * MIB;
    cr_assert_eq(ledger_free(&device), 100 * MIB);
    device.tight = 350 * MIB;
    cr_assert_eq(ledger_free(&device), 50 * MIB);
    device.limit = 200 * MIB;
    cr_assert_eq(ledger_free(&device), 0);
    device.limit = 5000 * MIB;
    device.tight = LEDGER_NO_LIMIT;
    cr_assert_eq(ledger_capacity(&device), 1000 * MIB);
}

Test(ledger, steps_grow_with_the_device_and_shrink_where_little_is_left)
{
    struct ledger_device device = {
        .own = 1024 * MIB, .limit = LEDGER_NO_LIMIT, .tight = LEDGER_NO_LIMIT};

    cr_assert_eq(ledger_round(&device, 1), 64 * MIB);
    cr_assert_eq(ledger_round(&device, 64 * MIB + 1), 64 * MIB + 1);
    device.own = 128 * 1024 * MIB;
    cr_assert_eq(ledger_round(&device, 1), 2048 * MIB);
    device.own = 100 * MIB;
    /* 90 are free after it: a quarter of them more. */
    cr_assert_eq(ledger_round(&device, 10 * MIB), 10 * MIB + 90 * MIB / 4);
    cr_assert_eq(ledger_round(&device, 100 * MIB), 100 * MIB);
    cr_assert_eq(ledger_round(&device, 200 * MIB), 200 * MIB);
    cr_assert_eq(ledger_initial(&device), 25 * MIB);
    device.reserved = 100 * MIB;
    cr_assert_eq(ledger_initial(&device), 0);
}

Test(ledger, history_keeps_every_peak_in_bounded_memory)
{
    struct history history = {0};
    uint64_t most = 0;

    srandom(9);
    for (uint64_t second = 0; second < 100000; second++) {
        uint64_t held = (uint64_t)(random() % 1000);
        held += second == 54321 ? 5000 : 0;
        most = held > most ? held : most;
        history_add(&history, 7000 + second * 1000, held + 1, held);
        cr_assert_leq(history.count, HISTORY_SIZE);
    }
    uint64_t found = 0, at = 0;
    for (uint32_t i = 0; i < history.count; i++) {
        if (history.spans[i].held > found) {
            found = history.spans[i].held;
            at = i;
        }
        cr_assert_eq(history.spans[i].granted, history.spans[i].held + 1);
    }
    cr_assert_eq(found, most);
    cr_assert_eq(at, 54321ull * 1000 / history.span_ms);
    cr_assert_geq(history.count, HISTORY_SIZE / 2);
    cr_assert_geq(history.span_ms * HISTORY_SIZE, 100000ull * 1000);
}
