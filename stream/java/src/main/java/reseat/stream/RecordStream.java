package reseat.stream;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import reseat.stream.ReseatException.Reason;

/**
 * Records and answers in order, exactly once, over as many connections as it takes. When the service ends,
 * the answers that are in the connection's ring are kept in `leftAnswers`, and the records without
 * answers in `leftRecords`, which go to the next connection before any other record.
 *
 * <p>Thread-safe, for one thread that sends and one that receives. Only await() blocks.
 */
final class RecordStream {
    private static final ByteBuffer EMPTY = ByteBuffer.allocate(0);
    private static final long PAUSE_NS = 10_000_000;
    private static final long PAUSE_MAX_NS = 500_000_000;
    private static final int PAYLOAD_BYTES = 64 << 10;
    private static final int FRUITLESS_MAX = 10;

    final int input;
    final int output;
    private final Dialer dialer;
    private final long reconnect;
    private final long timeout;

    private final ReentrantLock lock = new ReentrantLock();
    /** Signalled whenever a thread has waited for the service, and may have seen news. */
    private final Condition news = lock.newCondition();
    /* The lock guards all of these. */
    private Connection connection; /* null: the service has ended. */
    private Connection claimed; /* whose slots claim() gave last. */
    private long claimedAt; /* When it did; when answers() gave some. */
    private long answersAt;
    private ByteBuffer leftRecords = EMPTY;
    private ByteBuffer leftAnswers = EMPTY;
    private long sent;
    private long taken;
    private boolean waiting; /* A thread waits for the service: the others wait for `news`. */
    private int fruitless; /* Connections in a row that ended before a record was answered. */
    private boolean closed;
    private ReseatException failed;
    private String program;

    RecordStream(Dialer dialer, Duration reconnect, Duration timeout) {
        this.dialer = dialer;
        this.reconnect = reconnect.toNanos();
        this.timeout = timeout == null ? 0 : Math.max(1, timeout.toNanos());
        try {
            connection = dialer.open(this.timeout);
        } catch (InterruptedException e) {
            throw interrupted();
        }
        input = connection.input;
        output = connection.output;
        program = connection.program;
    }

    /** What the worker asks for, or 64 KiB; at most @most. */
    private static int payload(int hint, int size, int most) {
        return Math.min(most, hint > 0 ? hint : Math.max(1, PAYLOAD_BYTES / size));
    }

    /**
     * Free slots for as many records as are to be packed at a time, and at most @most; empty: there are none now. A
     * second claim replaces the first one.
     */
    ByteBuffer claim(int most) {
        lock.lock();
        try {
            checkOpen();
            if (hasFailed() || connection == null || !sendLeft())
                return EMPTY; // await() or answers() says why, after the answers that came.
            claimed = connection;
            claimedAt = System.nanoTime();
            return connection.slots(connection.records, input, connection.sent,
                    Math.min(payload(connection.packPayload(), input, most), connection.free()));
        } finally {
            lock.unlock();
        }
    }

    /** Send the first @count records that were written into what claim() returned, @slots. */
    void send(ByteBuffer slots, int count) {
        lock.lock();
        try {
            checkOpen();
            if (claimed == connection)
                connection.send(count, System.nanoTime() - claimedAt);
            else
                leftRecords = join(leftRecords, slots.slice(0, count * input));
            sent += count;
        } finally {
            lock.unlock();
        }
    }

    /** Send @records even if there are no free slots now. They are copied. */
    void add(ByteBuffer records) {
        lock.lock();
        try {
            checkOpen();
            sent += records.remaining() / input;
            leftRecords = join(leftRecords, records);
            if (connection != null)
                sendLeft();
        } finally {
            lock.unlock();
        }
    }

    /** As many answers as are to be unpacked at a time, and at most @most, read-only; empty: there are none now. They
     * stay until they are released. */
    ByteBuffer answers(int most) {
        lock.lock();
        try {
            boolean last = hasFailed(); // Before the answers are looked at: none comes after it.
            ByteBuffer found = EMPTY;
            if (leftAnswers.hasRemaining())
                found = leftAnswers.slice(leftAnswers.position(),
                        (int) Math.min((long) payload(0, output, most) * output, leftAnswers.remaining()));
            else if (connection != null)
                found = connection.slots(connection.answers, output, connection.taken,
                        Math.min(payload(connection.unpackPayload(), output, most),
                                connection.answered() - connection.taken));
            if (!found.hasRemaining())
                check(last);
            answersAt = System.nanoTime();
            return found.asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN);
        } finally {
            lock.unlock();
        }
    }

    /** Let the service reuse the slots of the first @count answers. */
    void release(int count) {
        lock.lock();
        try {
            int left = Math.min(count, leftAnswers.remaining() / output);
            leftAnswers.position(leftAnswers.position() + left * output);
            if (connection != null && count > left)
                connection.release(count - left, System.nanoTime() - answersAt);
            taken += count;
        } finally {
            lock.unlock();
        }
    }

    /** Records whose answers are not released. */
    long inFlight() {
        lock.lock();
        try {
            return sent - taken;
        } finally {
            lock.unlock();
        }
    }

    int capacity() {
        lock.lock();
        try {
            return connection == null ? 1 : connection.capacity;
        } finally {
            lock.unlock();
        }
    }

    String program() {
        lock.lock();
        try {
            return program;
        } finally {
            lock.unlock();
        }
    }

    boolean isShared() {
        lock.lock();
        try {
            return connection instanceof SharedConnection;
        } finally {
            lock.unlock();
        }
    }

    /** For await(): there is an answer. The lock is held. */
    boolean hasAnswers() {
        return leftAnswers.hasRemaining()
                || connection != null && connection.answered() > connection.taken;
    }

    /** For await(): claim() returns slots. The lock is held. */
    boolean hasRoom() {
        return !hasFailed() && connection != null && sendLeft() && connection.free() > 0;
    }

    /**
     * Wait until @ready, which is called under the lock, whenever there is news. Connects again
     * when the service has ended.
     *
     * @throws ReseatException for all reasons but REFUSED at the first opening
     */
    void await(BooleanSupplier ready) {
        long until = System.nanoTime() + timeout;
        long lost = 0;
        long pause = 0;
        lock.lock();
        try {
            while (!closed) {
                Connection current = connection;
                long seen = current == null ? 0 : current.answered();
                if (current != null)
                    sendLeft();
                boolean last = hasFailed();
                if (ready.getAsBoolean())
                    return;
                check(last);
                if (Thread.interrupted())
                    throw new InterruptedException();
                long left = timeout == 0 ? 0 : until - System.nanoTime();
                if (timeout != 0 && left <= 0)
                    throw new ReseatException(Reason.TIMED_OUT, "no answer came within "
                            + timeout / 1_000_000 + " ms; " + (sent - taken) + " records are on their way");
                if (waiting) {
                    if (left == 0)
                        news.await();
                    else
                        news.await(left, TimeUnit.NANOSECONDS);
                    continue;
                }
                waiting = true;
                lock.unlock();
                Connection made = null;
                boolean alive = true;
                ReseatException problem = null;
                try {
                    if (current != null)
                        alive = current.await(seen, left);
                    else
                        made = dialer.open(left);
                } catch (ReseatException e) {
                    problem = e;
                } finally {
                    lock.lock();
                    waiting = false;
                    news.signalAll();
                }
                if (made != null)
                    begin(made);
                else if (!alive)
                    end(current);
                if (closed || problem == null && fruitless == 0)
                    continue;
                lost = lost == 0 ? System.nanoTime() : lost;
                if (problem != null && (problem.reason() != Reason.NO_SERVICE
                        || System.nanoTime() - lost + pause >= reconnect))
                    throw new ReseatException(problem.reason(), "the stream service ended, and "
                            + (sent - taken) + " records are on their way: " + problem.getMessage(), problem);
                news.await(pause, TimeUnit.NANOSECONDS);
                pause = Math.min(PAUSE_MAX_NS, PAUSE_NS + pause + pause / 2);
            }
            checkOpen();
        } catch (InterruptedException e) {
            throw interrupted();
        } finally {
            lock.unlock();
        }
    }

    /** Let await() look at its condition again. */
    void wake() {
        lock.lock();
        try {
            news.signalAll();
            if (connection != null)
                connection.wake();
        } finally {
            lock.unlock();
        }
    }

    void close() {
        lock.lock();
        try {
            closed = true;
            dialer.cancel();
            if (connection != null)
                connection.close();
            news.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Throw what lets nothing go on. The lock is held. */
    private void check(boolean isFailed) {
        checkOpen();
        if (isFailed)
            throw new ReseatException(failed.reason(), failed.getMessage(), failed);
    }

    private void checkOpen() {
        if (closed)
            throw new ReseatException(Reason.CLOSED, "the stream is closed");
    }

    private boolean hasFailed() {
        String why = failed == null && connection != null ? connection.failure() : null;
        if (why != null)
            failed = new ReseatException(Reason.FAILED, why);
        return failed != null;
    }

    private static ReseatException interrupted() {
        Thread.currentThread().interrupt();
        return new ReseatException(Reason.INTERRUPTED,
                "interrupted while waiting for the stream service");
    }

    private void begin(Connection made) {
        if (closed || made.input != input || made.output != output) {
            made.close();
            if (!closed)
                failed = new ReseatException(Reason.FAILED, "the service was started again with another "
                        + "kernel of this name: its records have " + made.input + " and " + made.output
                        + " bytes, before " + input + " and " + output);
            return;
        }
        connection = made;
        program = made.program;
        sendLeft();
    }

    /** Keep what the ended service's connection has. Its worker may still answer: what it answers from here on is done
     * again. */
    private void end(Connection ended) {
        if (connection != ended || ended.failure() != null)
            return;
        long answered = ended.answered();
        for (long i = ended.taken; i < answered;) {
            ByteBuffer some = ended.slots(ended.answers, output, i, answered - i);
            i += some.remaining() / output;
            leftAnswers = join(leftAnswers, some);
        }
        ByteBuffer unanswered = EMPTY;
        for (long i = answered; i < ended.sent;) {
            ByteBuffer some = ended.slots(ended.records, input, i, ended.sent - i);
            i += some.remaining() / input;
            unanswered = join(unanswered, some);
        }
        leftRecords = join(unanswered, leftRecords);
        connection = null;
        ended.close();
        fruitless = answered > 0 ? 0 : fruitless + 1;
        if (fruitless == FRUITLESS_MAX || reconnect == 0)
            failed = new ReseatException(Reason.NO_SERVICE, "the stream service ended"
                    + (reconnect == 0 ? "" : " " + fruitless + " times before it answered a record")
                    + "; " + (sent - taken) + " records are on their way");
    }

    /** Give the connection records that are left. False: some still are. */
    private boolean sendLeft() {
        while (leftRecords.hasRemaining() && connection.free() > 0) {
            ByteBuffer slots = connection.slots(connection.records, input, connection.sent,
                    Math.min(connection.free(), leftRecords.remaining() / input));
            int count = slots.remaining() / input;
            slots.put(leftRecords.slice(leftRecords.position(), slots.remaining()));
            leftRecords.position(leftRecords.position() + count * input);
            connection.send(count, 0);
        }
        return !leftRecords.hasRemaining();
    }

    private static ByteBuffer join(ByteBuffer first, ByteBuffer second) {
        if (!second.hasRemaining())
            return first;
        return ByteBuffer.allocate(Math.addExact(first.remaining(), second.remaining()))
                .put(first.duplicate()).put(second.duplicate()).flip();
    }
}
