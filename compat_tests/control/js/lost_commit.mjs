// Commits two transactions; the second commit's response is lost. Arguments: bootstrap servers, control API.
import { Kafka, Partitioners } from "kafkajs";

const [bootstrapServers, control] = process.argv.slice(2);

async function ask(method, path, body) {
  const response = await fetch(`http://${control}${path}`, { method, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return text;
}

await ask("POST", "/topics", { orders: { partitions: 1, config: { "retention.ms": 86400000 } } });
await ask("POST", "/faults", { on: "EndTxn", transactional_id: "app", nth: 2, drop_response: "close" });

const kafka = new Kafka({ brokers: [bootstrapServers], logLevel: 1 });
const producer = kafka.producer({
  transactionalId: "app",
  idempotent: true,
  maxInFlightRequests: 1,
  createPartitioner: Partitioners.DefaultPartitioner,
});
await producer.connect();
for (const value of ["first", "second"]) {
  const transaction = await producer.transaction();
  await transaction.send({ topic: "orders", messages: [{ value }] });
  try {
    await transaction.commit();
    console.log(`committed ${value}`);
  } catch (error) {
    console.log(`failed ${value} ${error}`);
  }
}
await producer.disconnect();
console.log(`rules ${await ask("GET", "/faults")}`);
console.log(`requests ${await ask("GET", "/requests?api=EndTxn")}`);
console.log(`records ${await ask("GET", "/topics/orders/records?isolation=read_committed")}`);
console.log(`moved ${await ask("POST", "/clock/advance", { days: 7 })}`);
console.log(`left ${await ask("GET", "/topics/orders/records?isolation=read_committed")}`);
