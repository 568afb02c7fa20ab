#include "state/program/program.h"
#include "tests/support/engine_rig.h"

/*
 * A kind of object that the engine does not know: what it takes for it to be moved is here, and
 * its type.
 */

struct note {
    struct object object;
    cl_event real[RESIDENCES_MAX];
    struct context *context;
    struct note *of; /* NULL: of nothing else */
    bool arrived;    /* while real[] was there */
};

/* What was done, in order: 'm' and 'v' for what is made of nothing else, 'M' and 'V' for parts. */
static char done[32];
static const struct note *fails;
static cl_int error_of_note = CL_SUCCESS;
static bool has_reason;
static bool programs_first = true;

static void did(char what)
{
    cr_assert_lt(strlen(done), sizeof(done) - 1);
    done[strlen(done)] = what;
}

static void note_leave(struct object *object)
{
    struct note *note = (struct note *)object;
    for (uint8_t residence_index = 0; residence_index < note->context->residences;
         residence_index++)
        if (note->real[residence_index])
            note->context->at[residence_index]->cl->clReleaseEvent(note->real[residence_index]);
}

static void note_destroy(struct object *object)
{
    object_unhold(((struct note *)object)->of);
    object_unhold(((struct note *)object)->context);
}

static void note_release(const cl_icd_dispatch *cl, void *real, void *kept)
{
    cr_assert_null(kept);
    did('r');
    cl->clReleaseEvent(real);
}

static cl_int note_make(struct note *note, uint8_t residence_index)
{
    const struct residence *residence = note->context->at[residence_index];
    cl_int error = CL_SUCCESS;
    if (!note->real[residence_index])
        note->real[residence_index] = residence->cl->clCreateUserEvent(residence->context, &error);
    return error;
}

static cl_int note_make_real(struct object *object, struct move_context *move)
{
    struct note *note = (struct note *)object;
    uintptr_t cursor = 0;
    struct program *program;
    for (; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program))
        programs_first = programs_first && atomic_load(&program->made[move->to]) != 0;
    if (note == fails) {
        if (has_reason)
            strcpy(move->reason, "notes are not read there");
        return error_of_note;
    }
    if (!note->real[move->to])
        did(note->of ? 'M' : 'm');
    return note_make(note, move->to);
}

static cl_int note_arrive(struct object *object, const struct move_context *move)
{
    struct note *note = (struct note *)object;
    note->arrived = note->real[move->to] && (!note->of || note->of->real[move->to]);
    return CL_SUCCESS;
}

static void note_vacate(struct object *object, const struct move_context *move,
                        uint8_t residence_index)
{
    struct note *note = (struct note *)object;
    if (!move_empties(move, residence_index))
        return;
    did(note->of ? 'V' : 'v');
    residence_retire(move->context->at[residence_index], OBJECT_EXTRA, note->real[residence_index],
                     NULL);
    note->real[residence_index] = NULL;
}

static bool note_is_part(const struct object *object)
{
    return ((const struct note *)object)->of != NULL;
}

OBJECT_CLASS(note_class) = {
    .type = OBJECT_EXTRA,
    .size = sizeof(struct note),
    .leave = note_leave,
    .destroy = note_destroy,
    .release = note_release,
    .context = offsetof(struct note, context),
    .name = "a note",
    .make_real = note_make_real,
    .arrive = note_arrive,
    .vacate = note_vacate,
    .is_part = note_is_part,
};

static struct engine_rig rig;
static struct engine_program p;
static struct note *part, *whole; /* the part is met first */

static struct note *note(void)
{
    struct note *made = object_create(OBJECT_EXTRA);
    cr_assert_not_null(made);
    made->context = (struct context *)p.context;
    object_hold(made->context);
    OK(note_make(made, context_home(made->context)));
    return made;
}

static void begin(void)
{
    engine_rig_open(&rig, "[one] name=one [two] name=two");
    engine_program_open(&rig, 0, "__kernel void none(void) {}", &p);
    part = note();
    whole = note();
    part->of = whole;
    object_hold(whole);
    object_publish(whole);
    object_publish(part);
}

static void end(void)
{
    cr_assert(object_release(part));
    cr_assert(object_release(whole));
    engine_program_close(&p);
    cr_assert(engine_rig_empties(&rig, "one"), "alive: %s", engine_rig_alive(&rig, "one"));
    cr_assert(engine_rig_empties(&rig, "two"), "alive: %s", engine_rig_alive(&rig, "two"));
}

Test(moves_classes, of_the_engine_are_whole)
{
    engine_rig_open(&rig, "[one] name=one");
    for (enum object_type type = OBJECT_PLATFORM; type < OBJECT_TYPES; type++) {
        cr_assert_not_null(object_classes[type], "type %d", (int)type);
        cr_assert(object_class_is_whole(object_classes[type]), "type %d", (int)type);
        cr_assert_eq(object_classes[type]->type, type);
        cr_assert_eq(object_classes[type]->release != NULL, type > OBJECT_CONTEXT);
    }
}

Test(moves_classes, of_another_kind_of_object_need_nothing_else)
{
    begin();
    engine_rig_moves(&rig, "two");
    cr_assert_str_eq(done, "mMVvrr");
    cr_assert(programs_first);
    cr_assert(whole->arrived && part->arrived);
    cr_assert(engine_rig_empties(&rig, "one"), "alive: %s", engine_rig_alive(&rig, "one"));
    engine_rig_moves(&rig, NULL);
    cr_assert_str_eq(done, "mMVvrrVvrr");
    cr_assert(engine_rig_empties(&rig, "two"), "alive: %s", engine_rig_alive(&rig, "two"));
    engine_rig_moves(&rig, "one");
    cr_assert_str_eq(done, "mMVvrrVvrrmM");
    cr_assert_not_null(whole->real[context_home(whole->context)]);
    end();
}

Test(moves_classes, say_which_object_cannot_be_made)
{
    struct move_report report;
    begin();
    fails = part;
    error_of_note = CL_OUT_OF_RESOURCES;
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_ROLLED_BACK);
    cr_assert_str_eq(report.reason, "a note cannot be made on two (OpenCL error -5)");
    cr_assert_not(report.lasting);
    /* What was made is taken away again, and released at once. */
    cr_assert_str_eq(done, "mVvr");
    cr_assert(engine_rig_empties(&rig, "two"), "alive: %s", engine_rig_alive(&rig, "two"));
    error_of_note = CL_INVALID_VALUE;
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_ROLLED_BACK);
    cr_assert(report.lasting, "it would be the same again");
    fails = NULL;
    engine_rig_moves(&rig, "two");
    end();
}

Test(moves_classes, say_why_an_object_cannot_be_used)
{
    struct move_report report;
    begin();
    fails = whole;
    error_of_note = CL_INVALID_WORK_GROUP_SIZE;
    has_reason = true;
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_ROLLED_BACK);
    cr_assert_str_eq(report.reason, "notes are not read there");
    cr_assert(report.lasting);
    end();
}
