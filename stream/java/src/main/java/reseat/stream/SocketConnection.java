package reseat.stream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Records and answers go through the socket, in frames. The rings are this process's own; two threads carry
 * what is in them. A record stays in its ring until it is answered, so that it can be sent again.
 */
final class SocketConnection extends Connection {
    private static final int RING_BYTES = 4 << 20;

    private final Wire wire;
    /* The monitor of this object guards these and the totals. */
    private long written;
    private long answered;
    private String failure;
    private boolean woken;
    private boolean ended;

    /** Takes @wire. */
    SocketConnection(Wire wire, Wire.Opened opened) {
        super(opened.input, opened.output,
                (int) Math.min(opened.capacity,
                        Math.max(2, RING_BYTES / Math.max(opened.input, opened.output))),
                opened.program);
        this.wire = wire;
        records = ByteBuffer.allocateDirect(Math.multiplyExact(capacity, input));
        answers = ByteBuffer.allocateDirect(Math.multiplyExact(capacity, output));
        start("reseat-stream-send", this::carryRecords);
        start("reseat-stream-receive", this::carryAnswers);
    }

    private static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private void carryRecords() {
        int most = Math.max(1, Math.min(capacity, (256 << 10) / input));
        byte[] frame = new byte[8 + most * input];
        ByteBuffer ring = records.duplicate();
        try {
            for (;;) {
                ByteBuffer next;
                synchronized (this) {
                    while (written == sent && !ended)
                        wait();
                    if (ended)
                        return;
                    next = slots(ring, input, written, Math.min(most, sent - written));
                }
                int size = next.remaining();
                next.get(frame, 8, size);
                synchronized (this) {
                    written += size / input; // Its answer may come before write() returns.
                }
                wire.write(Wire.RECORDS, frame, 8 + size);
            }
        } catch (IOException | InterruptedException e) {
            end(null);
        }
    }

    private void carryAnswers() {
        byte[] body = new byte[Wire.BODY_MAX];
        ByteBuffer ring = answers.duplicate();
        try {
            for (;;) {
                ByteBuffer head = wire.readHead();
                int size = head.getInt(0);
                int type = head.getShort(4);
                wire.readBody(body, size);
                if (type == Wire.REFUSED) {
                    end(Wire.sentence(ByteBuffer.wrap(body, 0, size)
                            .order(ByteOrder.LITTLE_ENDIAN)));
                    return;
                }
                synchronized (this) {
                    if (type != Wire.ANSWERS || size % output != 0 || answered + size / output > written) {
                        end("the service broke the rules of its protocol: a frame of type " + type
                                + " with " + size + " bytes");
                        return;
                    }
                }
                for (int at = 0; at < size;)
                    at += keep(ring, body, at, size);
            }
        } catch (IOException | InterruptedException e) {
            end(null);
        }
    }

    /** Put the answers of @body from @at on into their slots, as far as there is room. Blocks until there is some. */
    private synchronized int keep(ByteBuffer ring, byte[] body, int at, int size)
            throws InterruptedException, IOException {
        while (answered - taken == capacity && !ended)
            wait();
        if (ended)
            throw new IOException("closed");
        ByteBuffer slots = slots(ring, output, answered, capacity - (answered - taken));
        int count = Math.min(slots.remaining(), size - at);
        slots.put(body, at, count);
        answered += count / output;
        notifyAll();
        return count;
    }

    private synchronized void end(String why) {
        failure = failure == null ? why : failure;
        ended = true;
        notifyAll();
        wire.close();
    }

    @Override
    synchronized long answered() {
        return answered;
    }

    @Override
    synchronized String failure() {
        return failure;
    }

    @Override
    synchronized void send(int count, long nanos) {
        sent += count;
        notifyAll();
    }

    @Override
    synchronized void release(int count, long nanos) {
        taken += count;
        notifyAll();
    }

    @Override
    synchronized boolean await(long seen, long nanos) throws InterruptedException {
        long until = System.nanoTime() + nanos;
        while (answered == seen && !ended && !woken) {
            long left = until - System.nanoTime();
            if (nanos != 0 && left <= 0)
                break;
            wait(nanos == 0 ? 0 : left / 1_000_000 + 1);
        }
        woken = false;
        return !ended || answered != seen;
    }

    @Override
    synchronized void wake() {
        woken = true;
        notifyAll();
    }

    @Override
    void close() {
        end(null);
    }
}
